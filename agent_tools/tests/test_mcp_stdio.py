"""`manage.py mcp`: the same tools over pipes, for the owner of a token in the environment."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import anyio
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connection
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from agent_tools.authentication import create_token
from agent_tools.mcp.server import FEW
from agent_tools.models import AccessToken, TokenScope
from agent_tools.tests.mcp_messages import LEGACY, META, MODERN
from agent_tools.tools import mcp_registry
from intake.tests.factories import a_person, a_turn
from memory import index
from memory.models import MemoryRecord

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

COMMAND = [sys.executable, "manage.py", "mcp"]


def environment(secret):
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}")
    given = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "config.settings.test",
        "DATABASE_URL": database.geturl(),
        "PYTHONWARNINGS": "default",
    }
    return given | ({"RECOLLECT_TOKEN": secret} if secret is not None else {})


@contextmanager
def running(secret, *options):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(
        [*COMMAND, *options], cwd=settings.BASE_DIR, env=environment(secret), text=True, **pipes
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def connected(secret, mode):
    parameters = StdioServerParameters(
        command=COMMAND[0], args=COMMAND[1:], env=environment(secret), cwd=settings.BASE_DIR
    )
    async with Client(stdio_client(parameters), mode=mode) as client:
        yield client


def say(process, *lines):
    for line in lines:
        process.stdin.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
    process.stdin.flush()


def request(request_id, method="tools/list", **params):
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": META}}


@pytest.mark.medium
@pytest.mark.parametrize("mode", ["legacy", MODERN])
def test_the_official_client_lists_and_calls_the_registrys_tools(mode):
    alice = a_person()
    turn = a_turn(alice, "I adopted a cat named Miso")
    index.embed_pending()
    secret = create_token(user=alice).secret

    async def work():
        async with connected(secret, mode) as client:
            tools = await client.list_tools()
            found = await client.call_tool("search_chat_history", {"query": "adopted a cat"})
            refused = await client.call_tool("search_chat_history", {"query": ""})
            return client.protocol_version, tools, found, refused

    version, listed, found, refused = anyio.run(work)
    assert version == (LEGACY if mode == "legacy" else MODERN)
    assert [(tool.name, tool.input_schema) for tool in listed.tools] == [
        (tool.name, tool.input_schema) for tool in mcp_registry
    ]
    assert found.structured_content["results"][0]["conversationId"] == str(turn.conversation_id)
    assert json.loads(refused.content[0].text)["code"] == "validation_error"


def test_the_few_tools_of_daily_work_are_listed_alone_and_all_are_called():
    with running(create_token(user=a_person()).secret, "--tools", "few") as process:
        say(process, request(1), request(2, "tools/call", name="search", arguments={"query": "oaks"}))
        answers = {line["id"]: line["result"] for line in (json.loads(process.stdout.readline()) for _ in range(2))}
    assert [tool["name"] for tool in answers[1]["tools"]] == [tool.name for tool in mcp_registry if tool.name in FEW]
    assert not answers[2].get("isError")


def test_a_configuration_of_before_still_starts(monkeypatch):
    monkeypatch.delenv("RECOLLECT_TOKEN", raising=False)
    with pytest.raises(CommandError, match="RECOLLECT_TOKEN"):
        call_command("mcp", "--all-tools")


@pytest.mark.parametrize("secret", [None, "", "f" * 64, "a b"])
def test_without_a_good_token_it_does_not_start_and_says_why(secret, monkeypatch):
    """test_token_matrix.py has what the process of such a command writes, and its status."""
    monkeypatch.delenv("RECOLLECT_TOKEN", raising=False)
    if secret is not None:
        monkeypatch.setenv("RECOLLECT_TOKEN", secret)
    with pytest.raises(CommandError, match="RECOLLECT_TOKEN"):
        call_command("mcp")


def saving(request_id, content):
    return request(request_id, "tools/call", name="save_memory", arguments={"content": content})


def test_stdout_is_the_protocol_and_nothing_else_whatever_comes_in():
    secret = create_token(user=a_person(), scopes=[TokenScope.WRITE]).secret
    with running(secret) as process:
        say(process, request(1), "no json", "[" * 10_000, "", '{"jsonrpc": "2.0"}', request(2), request(2))
        say(process, request(3, "tools/call", name="search_chat_history", arguments={"query": "cat"}))
        say(process, request(4, "tools/call", name="drop_everything", arguments={}))
        say(process, saving(7, "Oaks"), saving(7, "Elms"))
        by_id = defaultdict(list)
        # A client that closes the pipe cancels what it still waits for.
        while not ({1, 2, 3, 4} <= by_id.keys() and len(by_id[7]) == 2):
            line = json.loads(process.stdout.readline())
            by_id[line.get("id")].append(line)
        process.stdin.close()
        assert all(json.loads(line) for line in process.stdout)
        assert process.wait(20) == 0
    assert by_id[1][-1]["result"]["tools"]
    assert by_id[2][-1]["result"]["tools"]
    assert json.loads(by_id[3][-1]["result"]["content"][0]["text"])["code"] == "insufficient_scope"
    assert by_id[4][-1]["error"]["code"] == -32602
    # Two calls of one id are both answered, and save what their answers say.
    went_well = [answer for answer in by_id[7] if "result" in answer]
    assert MemoryRecord.objects.count() == len(went_well) >= 1
    assert {answer["error"]["code"] for answer in by_id[7] if "error" in answer} <= {-32600}


def test_a_token_may_do_what_its_scope_is_for_and_its_revocation_ends_the_server():
    with running(create_token(user=a_person(), scopes=[TokenScope.SEARCH]).secret) as process:
        say(process, saving(1, "Ana likes oaks"))
        say(process, request(2, "tools/call", name="search_memory", arguments={"query": "oaks"}))
        answers = {line["id"]: line["result"] for line in (json.loads(process.stdout.readline()) for _ in range(2))}
        assert json.loads(answers[1]["content"][0]["text"])["code"] == "insufficient_scope"
        assert not answers[2].get("isError")
        assert not MemoryRecord.objects.exists()
        AccessToken.objects.all().delete()
        assert process.wait(5) == 77
        assert "revoked" in process.stderr.read()
