"""What no caller should send, at REST and MCP alike: the contract's error, and nothing half-done."""

import json
import socket
import time
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from django.db import connection

from agent_tools.authentication import create_token
from agent_tools.tests import mcp_messages
from agent_tools.tests.mcp_messages import LEGACY, MODERN, post
from agent_tools.tests.test_mcp_http import sleeping
from intake.tests.factories import a_person
from memory import index as indexing
from memory.models import MemoryRecord

pytestmark = pytest.mark.django_db(transaction=True)

DEEP = "[" * 10_000 + "]" * 10_000


@pytest.fixture
def secret(server):
    return create_token(user=a_person()).secret


@pytest.fixture(params=["rest", LEGACY, MODERN])
def call(request, server, secret):
    """Calls a tool one way or another; gives the contract's code and which fields it names, or None if it went well.

    `raw` is the arguments as they are written, where no program would write them so.
    """

    def over_rest(tool, arguments=None, raw=None):
        response = mcp_messages.httpx2.post(
            f"{server}/api/v1/tools/{tool}/",
            content=raw if raw is not None else json.dumps(arguments),
            headers={"Authorization": f"Bearer {secret}", "Content-Type": "application/json"},
            timeout=30,
        )
        return None if response.status_code == 200 else told(response.json())

    def over_mcp(tool, arguments=None, raw=None):
        params = {"name": tool, "arguments": "RAW" if raw is not None else arguments}
        body = json.dumps(mcp_messages.message("tools/call", params, version=request.param))
        if raw is not None:
            body = body.replace('"RAW"', raw)
        response = post(server, secret, "tools/call", params, version=request.param, body=body.encode())
        answer = response.json()
        if "error" in answer:
            return answer["error"]["code"], set()
        result = answer["result"]
        return told(json.loads(result["content"][0]["text"])) if result.get("isError") else None

    return over_rest if request.param == "rest" else over_mcp


def told(problem):
    return problem["code"], set(problem.get("errors", ()))


WRONG_INPUTS = (
    ({}, {"content"}),
    ({"content": "Oaks", "colour": "green"}, {"colour"}),
    ({"content": "Oaks", "user_id": 1}, {"user_id"}),
    ({"content": True}, {"content"}),
    ({"content": None}, {"content"}),
    ({"content": ["Oaks"]}, {"content"}),
    ({"content": {"text": "Oaks"}}, {"content"}),
    ({"content": "Oaks", "tags": {"food": 1}}, {"tags"}),
    ({"content": "Oaks", "tags": [["food"]]}, {"tags.0"}),
    ({"content": "x" * 1_000_000}, {"content"}),
)
NO_JSON = ("{", "nothing", '{"content": NaN}', '{"content": "a", "content": [5]}')
TOO_DEEP = (DEEP, f'{{"content": {DEEP}}}', f'{{"content": "Oaks", "tags": {DEEP}}}')
NO_OBJECT = ("[]", '"Oaks"', "5", "true")


def test_a_wrong_input_names_the_field_and_saves_nothing(call):
    for arguments, fields in WRONG_INPUTS:
        assert call("save_memory", arguments) == ("validation_error", fields), fields
    assert not MemoryRecord.objects.exists()


def test_every_tool_refuses_a_field_that_nobody_described(call):
    for tool in ("search_chat_history", "search_memory", "search_history", "get_conversation", "append_daily_log"):
        code, fields = call(tool, {"userId": 1})
        assert (code, "userId" in fields) == ("validation_error", True), tool


def test_a_query_of_a_megabyte_is_a_wrong_input(call):
    assert call("search_chat_history", {"query": "x" * 1_000_000}) == ("validation_error", {"query"})


def test_a_tool_that_there_is_not_is_told(call):
    assert call("drop_everything", {})[0] in ("not_found", -32602)


def test_what_is_no_json_saves_nothing(call):
    for raw in NO_JSON:
        assert call("save_memory", raw=raw)[0] in ("validation_error", -32700), raw
    assert not MemoryRecord.objects.exists()


def test_arrays_in_ten_thousand_arrays_are_refused(call):
    for raw in TOO_DEEP:
        assert call("save_memory", raw=raw)[0] in ("validation_error", -32700, -32600, -32602), raw[:40]
    assert not MemoryRecord.objects.exists()
    assert call("search_memory", {"query": "oaks"}) is None


def test_arguments_that_are_no_object_save_nothing(call):
    for raw in NO_OBJECT:
        assert call("save_memory", raw=raw)[0] in ("validation_error", -32600, -32602), raw
    assert not MemoryRecord.objects.exists()


# -- Leaving midway ----------------------------------------------------------------------------------------------------


def lines_of(secret, path, length):
    return [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {secret}",
        "Content-Type: application/json",
        f"Content-Length: {length}",
    ]


def a_save(secret, over):
    """The lines and the body of a request that saves a memory."""
    arguments = {"content": "Oaks"}
    if over == "rest":
        body = json.dumps(arguments)
        return lines_of(secret, "/api/v1/tools/save_memory/", len(body)), body
    params = {"name": "save_memory", "arguments": arguments}
    body = json.dumps(mcp_messages.message("tools/call", params, version=over))
    extra = mcp_messages.headers(version=over, method="tools/call", name="save_memory")
    del extra["Content-Type"]
    return [*lines_of(secret, "/mcp", len(body)), *(f"{name}: {value}" for name, value in extra.items())], body


@contextmanager
def sent(server, lines, body):
    """A line on which this was sent, and whose other end is not read; it is broken off at the end."""
    address = urlsplit(server)
    with socket.create_connection((address.hostname, address.port), timeout=10) as line:
        line.sendall("\r\n".join([*lines, "", body]).encode())
        yield line


@pytest.mark.parametrize("over", ["rest", LEGACY, MODERN])
def test_whoever_leaves_in_the_middle_of_the_body_has_saved_nothing(server, secret, over):
    lines, body = a_save(secret, over)
    with sent(server, lines, body[:-5]):
        pass
    time.sleep(0.5)
    assert not MemoryRecord.objects.exists()
    assert post(server, secret).status_code == 200


@pytest.mark.parametrize("over", ["rest", LEGACY, MODERN])
def test_whoever_leaves_while_it_is_saved_has_saved_all_of_it_or_nothing(server, secret, over, monkeypatch):
    """The database is slow in the middle: the record is there, and its index is not."""
    index = indexing.index

    def slowly(*args, **kwargs):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(2)")
        index(*args, **kwargs)

    monkeypatch.setattr(indexing, "index", slowly)
    lines, body = a_save(secret, over)
    with sent(server, lines, body) as line:
        wait_until(lambda: sleeping() == 1, line)
    wait_until(lambda: sleeping() == 0)
    time.sleep(0.5)
    saved = MemoryRecord.objects.count()
    assert saved == (1 if over == "rest" else 0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM indexed_texts")
        assert cursor.fetchone()[0] == saved


def wait_until(condition, line=None):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, line and line.recv(4096)
        time.sleep(0.05)
