"""Servers of others that are slow, wrong or hostile: each costs its own call a sentence, and nothing else."""

import asyncio
import json
from contextlib import contextmanager

import pytest
from django.utils import timezone
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chat.agent import servers
from chat.agent.context import ChatDeps
from chat.agent.servers import canonical, list_tools, tools_of_server
from chat.tests.mcp_servers import Others
from core.errors import InvalidInput, Unavailable
from core.isolation.acting import Caller
from intake.llm.language_models import sealed_key
from intake.models import ToolServer
from testing.serving import serving, wait_until


class Hostile:
    """Speaks just enough of the protocol to be listed; `answer` is what a call of a tool gets."""

    def __init__(self, tools, answer=None, **answers):
        self.tools, self.answers, self.seen = tools, {"tools/call": answer, **answers}, []

    async def handle(self, request):
        message = await request.json() if request.method == "POST" else {}
        method = message.get("method", request.method)
        self.seen.append((method, request.headers.get("authorization")))
        answer = self.answers[method]() if self.answers.get(method) else None
        if answer is not None:
            return await answer if asyncio.iscoroutine(answer) else answer
        if method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "h", "version": "1"},
            }
        elif method == "tools/list":
            result = {"tools": self.tools}
        elif method == "tools/call":
            result = {"content": []}
        elif "id" not in message:
            return Response(status_code=202 if request.method == "POST" else 405)
        else:
            error = {"code": -32601, "message": "no"}
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    @contextmanager
    def serving(self):
        with serving(Starlette(routes=[Route("/mcp", self.handle, methods=["GET", "POST", "DELETE"])])) as address:
            yield ToolServer(name="h", address=f"{address}/mcp", sealed=sealed_key("key"))


def a_tool(name="look", **more):
    return {"name": name, "inputSchema": {"type": "object", "properties": {"q": {"type": "string"}}}, **more}


CANNOT = "The server cannot be reached: "
READS = {"annotations": {"readOnlyHint": True}}


def call(server, tool="look"):
    async def run():
        server.tools = await list_tools(server, Caller(user_id=1))
        offered = {each.own_name: each for each in tools_of_server(server, set())}
        deps = ChatDeps(caller=Caller(user_id=1), now=timezone.now())
        return await offered[tool].call(type("Context", (), {"deps": deps}), {"q": "x"})

    return asyncio.run(run())


def counted(hostile):
    return [method for method, _ in hostile.seen].count("tools/call")


def test_one_address_has_one_spelling():
    for spelling in ("https://Example.org:443/mcp/", " https://example.org/mcp", "HTTPS://EXAMPLE.ORG/mcp"):
        assert canonical(spelling) == "https://example.org/mcp"
    assert canonical("http://[::1]:8000/mcp") == "http://[::1]:8000/mcp"
    for wrong in ("example.org", "file:///etc/passwd", "https://me:secret@example.org/", "https://example.org:x/", ""):
        with pytest.raises(InvalidInput):
            canonical(wrong)


def test_a_tool_with_a_bad_schema_loses_itself_and_no_other():
    circle = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}
    doubled = {
        str(n): {"type": "object", "properties": {a: {"$ref": f"#/$defs/{n + 1}"} for a in "ab"}} for n in range(40)
    }
    doubled["40"] = {"type": "string"}
    doubling = {"type": "object", "properties": {"a": {"$ref": "#/$defs/0"}}, "$defs": doubled}
    tools = [
        a_tool("$odd.näme", description="Odd"),
        {"name": "circle", "inputSchema": circle},
        {"name": "doubling", "inputSchema": doubling},
        {"name": "lost", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/Nothing"}}}},
        {"name": "large", "inputSchema": {"type": "object", "description": "x" * 100_000}},
        {
            "name": "defined",
            "inputSchema": {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
                "$defs": {"A": {"type": "string", "enum": ["x", "y"]}},
            },
        },
        *[a_tool("odd_n_me")] * 3,
        a_tool("x" * 100),
    ]
    with Hostile(tools).serving() as server:
        server.tools = asyncio.run(list_tools(server, Caller(user_id=1)))
    offered = tools_of_server(server, {"h_odd_n_me"})
    assert [tool.own_name for tool in offered] == ["$odd.näme", "defined", *["odd_n_me"] * 3, "x" * 100]
    names = [tool.name for tool in offered]
    assert len({*names, "h_odd_n_me"}) == 7
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isascii() for name in names)
    assert offered[1].schema["properties"] == {"a": {"type": "string", "enum": ["x", "y"]}, "b": {"type": "integer"}}


def large():
    result = {"content": [{"type": "text", "text": "x" * 2_000_000}]}
    return Response(json.dumps({"jsonrpc": "2.0", "id": 2, "result": result}), media_type="application/json")


def large_event():
    line = json.dumps({"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "x" * 2_000_000}]}})
    return Response(f"data: {line}\n\n", media_type="text/event-stream")


async def hangs():
    await asyncio.sleep(30)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (large, "sends too much"),
        (large_event, CANNOT),
        (hangs, "took too long"),
        (lambda: Response("nonsense", media_type="application/json"), CANNOT),
        (lambda: Response("data: {\n\n", media_type="text/event-stream"), CANNOT),
        (lambda: Response(status_code=401), "does not accept the key"),
        (lambda: Response(status_code=500), CANNOT),
        (lambda: Response(status_code=302, headers={"Location": "http://169.254.169.254/"}), CANNOT),
    ],
)
@pytest.mark.parametrize("about", [{}, READS])
def test_whatever_a_server_does_to_a_call_is_told_in_a_sentence(monkeypatch, answer, words, about):
    monkeypatch.setattr(servers, "CALL_SECONDS", 1.5)
    hostile = Hostile([a_tool(**about)], answer)
    with hostile.serving() as server, pytest.raises(Unavailable, match=words) as raised:
        call(server)
    assert raised.value.detail.startswith(CANNOT)
    # What may have acted is never sent twice.
    assert counted(hostile) == (2 if about else 1)


def test_a_lost_session_is_replaced_by_one_new_session():
    lost = iter([Response(status_code=404)])

    def answer():
        return next(lost, None)

    hostile = Hostile([a_tool(**READS)], answer)
    with hostile.serving() as server, pytest.raises(Unavailable) if not counted(hostile) < 3 else _nothing():
        call(server)
    assert counted(hostile) == 2


@contextmanager
def _nothing():
    yield


def test_a_server_that_asks_for_a_key_before_it_lists_says_so():
    refuses = {"initialize": lambda: Response(status_code=401)}
    with Hostile([], **refuses).serving() as server, pytest.raises(Unavailable, match="does not accept the key"):
        asyncio.run(list_tools(server, Caller(user_id=1)))


def test_an_address_in_this_network_is_called_for_staff_alone():
    hostile = Hostile([a_tool()])
    with hostile.serving() as server, pytest.raises(Unavailable, match="cannot be reached"):
        server.user_id = 1
        asyncio.run(list_tools(server, Caller(user_id=1)))
    assert not hostile.seen


def test_a_stop_reaches_a_call_that_hangs():
    hostile = Hostile([a_tool()], hangs)

    async def stopped(server):
        server.tools = await list_tools(server, Caller(user_id=1))
        (tool,) = tools_of_server(server, set())
        deps = ChatDeps(caller=Caller(user_id=1), now=timezone.now())
        task = asyncio.create_task(tool.call(type("Context", (), {"deps": deps}), {"q": "x"}))
        await asyncio.to_thread(wait_until, lambda: counted(hostile))
        task.cancel()
        began = asyncio.get_running_loop().time()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled() and asyncio.get_running_loop().time() - began < 2

    with hostile.serving() as server:
        asyncio.run(stopped(server))


def test_a_wrong_argument_is_the_tools_own_word():
    others = Others()
    with others.serving() as address, pytest.raises(servers.ToolFailed, match="refused: "):
        call(ToolServer(name="o", address=address), "create_issue")
    assert others.calls == []
