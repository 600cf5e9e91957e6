"""`/mcp` under a real server: both revisions by the official client, and what no client should send by hand."""

import json
import socket
import time
from contextlib import asynccontextmanager, closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from django.db import OperationalError, connection, connections
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from agent_tools.authentication import create_token
from agent_tools.mcp.server import FEW
from agent_tools.models import AccessToken, TokenScope
from agent_tools.tests.mcp_messages import LEGACY, MODERN, call, headers, message, post
from agent_tools.tools import mcp_registry
from core.isolation.acting import acting_as
from intake.tests.factories import a_person, a_turn
from memory import documents, index, records
from testing.examiner import as_the_application

MODES = ["legacy", MODERN, "auto"]


@pytest.fixture
def alice(server):
    return a_person()


@pytest.fixture
def secret(alice):
    return create_token(user=alice).secret


@asynccontextmanager
async def connected(address, secret, mode):
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}, timeout=20) as http,
        Client(streamable_http_client(f"{address}/mcp", http_client=http), mode=mode) as client,
    ):
        yield client


def ask(address, secret, tool, arguments, *, mode=MODERN):
    async def work():
        async with connected(address, secret, mode) as client:
            return await client.call_tool(tool, arguments)

    return anyio.run(work)


@pytest.mark.parametrize("mode", MODES)
def test_the_official_client_finds_the_registrys_tools(server, secret, mode):
    async def work():
        async with connected(server, secret, mode) as client:
            return client.protocol_version, client.server_info, await client.list_tools()

    version, info, listed = anyio.run(work)
    assert version == (LEGACY if mode == "legacy" else MODERN)
    # Who pins the revision asks nobody who is there.
    assert info is None if mode == MODERN else info.name == "recollect"
    assert [tool.name for tool in listed.tools] == [tool.name for tool in mcp_registry]
    for published, tool in zip(listed.tools, mcp_registry, strict=True):
        assert published.description == tool.description
        assert published.input_schema == tool.input_schema
        assert published.annotations.read_only_hint is (tool.is_read_only or None)
        assert published.annotations.destructive_hint is (None if tool.is_read_only else False)


@pytest.mark.parametrize("mode", MODES)
def test_a_result_comes_as_text_and_as_structured_content(server, alice, secret, mode):
    turn = a_turn(alice, "I adopted a cat named Miso")
    index.embed_pending()
    result = ask(server, secret, "search_chat_history", {"query": "adopted a cat"}, mode=mode)
    assert not result.is_error
    (found,) = result.structured_content["results"]
    assert (found["conversationId"], found["snippet"]) == (str(turn.conversation_id), "I adopted a cat named Miso")
    (content,) = result.content
    assert content.text.splitlines() == [
        f"1 turn found, best first; the nearest has the score {found['score']:.2f}.",
        f'-- {turn.said_at.date()} "{turn.conversation.title}"',
        "User: I adopted a cat named Miso",
        f"Assistant: {turn.assistant_message}",
        f"id: {turn.conversation_id.hex[-8:]}/1",
    ]


def tools_listed(address, secret, **extra):
    return post(address, secret, **extra).json()["result"]["tools"]


def names_listed(address, secret, **extra):
    return [tool["name"] for tool in tools_listed(address, secret, **extra)]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_every_tool_is_listed_but_where_the_address_asks_for_few(server, secret, version):
    every = [tool.name for tool in mcp_registry]
    assert names_listed(server, secret, version=version) == every
    assert names_listed(server, secret, version=version, path="/mcp?tools=all") == every
    few = names_listed(server, secret, version=version, path="/mcp?tools=few")
    assert few == [name for name in every if name in FEW]
    assert len(few) == len(FEW) == 7
    called = post(server, secret, "tools/call", {"name": "search", "arguments": {"query": "x"}}, path="/mcp?tools=few")
    assert not called.json()["result"].get("isError")


def test_the_list_of_all_tools_takes_at_most_three_thousand_tokens(server, secret):
    listed = json.dumps(tools_listed(server, secret), ensure_ascii=False, separators=(",", ":"))
    # Three characters a token, as `chat.agent.prompt.CHARACTERS_OF_TOOLS` counts.
    assert len(listed) / 3 <= 3_000


def test_the_list_has_what_the_token_may_call(server, alice):
    secret = create_token(user=alice, scopes=[TokenScope.WRITE]).secret
    assert names_listed(server, secret) == ["save_memory", "append_daily_log"]


def test_a_model_that_is_shown_the_text_alone_or_the_data_alone_reads_on_from_a_result(server, alice, secret):
    turn = a_turn(alice, "I adopted a cat named Miso", "Congratulations!")
    with acting_as(alice):
        log = documents.append(user=alice, day=turn.said_at.date(), text="Bought food for the cat", now=turn.said_at)
        record = records.create(user=alice, content="The cat gets no milk", now=turn.said_at)
    index.embed_pending()
    expected = {f"{turn.conversation_id.hex[-8:]}/1", log.id.hex[-8:], record.id.hex[-8:]}
    result = ask(server, secret, "search_history", {"query": "cat"})
    text = result.content[0].text
    assert expected <= {line.removeprefix("id: ") for line in text.splitlines() if line.startswith("id: ")}
    for name in ("text", "excerpt", "highlights", "byDate"):
        assert name not in json.dumps(result.structured_content)
    names = ("conversationId", "documentId", "recordId")
    ids = {each.get(name) for each in result.structured_content["results"] for name in names}
    assert {str(turn.conversation_id), str(log.id), str(record.id)} <= ids
    for each in expected:
        fetched = json.loads(ask(server, secret, "fetch", {"id": each}).content[0].text)
        assert "cat" in fetched["text"]
    read = ask(server, secret, "get_conversation", {"conversationId": f"{turn.conversation_id}/1"})
    assert "Person: I adopted a cat named Miso\nAssistant: Congratulations!" in read.content[0].text
    assert "Miso" not in json.dumps(read.structured_content)
    (found,) = ask(server, secret, "search_memory", {"query": "milk"}).structured_content["results"]
    assert found["record"].keys() <= {"id", "created_at", "updated_at"}


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_input_is_a_result_with_the_contracts_code(server, secret, mode):
    result = ask(server, secret, "search_chat_history", {"query": "", "user_id": 1}, mode=mode)
    assert result.is_error
    assert result.structured_content is None
    told = json.loads(result.content[0].text)
    assert (told["code"], told["retryable"]) == ("validation_error", False)
    assert set(told["errors"]) == {"query", "user_id"}


@pytest.mark.parametrize("mode", MODES)
def test_somebody_elses_and_a_missing_conversation_get_the_same_answer(server, secret, mode):
    theirs = a_turn(a_person("bob@example.com"), "secret").conversation_id
    answers = [
        ask(server, secret, "get_conversation", {"conversationId": str(key)}, mode=mode)
        for key in (theirs, "01890a5d-ac96-774b-bcce-b302099a8057")
    ]
    assert answers[0] == answers[1]
    assert json.loads(answers[0].content[0].text)["code"] == "not_found"


@pytest.mark.parametrize("mode", MODES)
def test_an_unknown_tool_is_a_protocol_error(server, secret, mode):
    async def work():
        async with connected(server, secret, mode) as client:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("drop_everything", {})
        return refused

    refused = anyio.run(work)
    assert refused.value.error.code == -32602
    assert "drop_everything" in refused.value.error.message


def test_a_token_needs_the_tools_scope(server, alice):
    secret = create_token(user=alice, scopes=[TokenScope.WRITE]).secret
    result = ask(server, secret, "search_chat_history", {"query": "cat"})
    assert json.loads(result.content[0].text)["code"] == "insufficient_scope"


def test_a_database_that_is_away_is_told_as_a_result(server, secret, monkeypatch):
    def away(*_, **__):
        raise OperationalError("connection refused at /secret/socket")

    monkeypatch.setattr("agent_tools.tools.chat_history.search", away)
    told = ask(server, secret, "search_chat_history", {"query": "cat"}).content[0].text
    assert (json.loads(told)["code"], json.loads(told)["retryable"]) == ("unavailable", True)
    assert "/secret" not in told


def test_what_nobody_expected_is_told_without_its_inside(server, secret, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("at /secret/place")

    monkeypatch.setattr("agent_tools.tools.chat_history.search", broken)
    told = ask(server, secret, "search_chat_history", {"query": "cat"}).content[0].text
    assert json.loads(told)["code"] == "internal_error"
    assert "/secret" not in told


# -- Who may ask -------------------------------------------------------------------------------------------------------


def expired(user):
    secret = create_token(user=user).secret
    AccessToken.objects.update(expiry="2020-01-01T00:00:00Z")
    return secret


def revoked(user):
    secret = create_token(user=user).secret
    AccessToken.objects.all().delete()
    return secret


def deactivated(user):
    type(user).objects.update(is_active=False)
    return create_token(user=user).secret


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("make", [expired, revoked, deactivated, lambda _: "f" * 64, lambda _: "a b", lambda _: None])
def test_without_a_good_token_it_is_401(server, alice, make, version):
    secret = make(alice)
    response = post(server, secret, version=version)
    assert (response.status_code, response.json()["code"]) == (401, "authentication_required")
    assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert response.headers["Content-Type"] == "application/problem+json"
    assert ("invalid_token" in response.headers["WWW-Authenticate"]) == (secret is not None)


@pytest.mark.parametrize("scheme", ["Bearer", "Token"])
def test_either_scheme_is_taken(server, secret, scheme):
    assert post(server, None, Authorization=f"{scheme} {secret}").status_code == 200


def test_neither_an_address_nor_a_session_is_a_token(server, alice, secret, log_in):
    body = json.dumps(message())
    assert httpx2.post(f"{server}/mcp?token={secret}", content=body, headers=headers()).status_code == 401
    assert log_in(alice).post("/mcp", content=body, headers=headers()).status_code == 401


def test_answers_are_kept_by_no_cache_and_the_list_is_private(server, secret):
    response = post(server, secret)
    assert response.headers["Cache-Control"] == "private, no-store"
    assert response.json()["result"]["cacheScope"] == "private"
    assert post(server, "x").headers["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "https://app.example"}, 200),
        ({"Origin": "https://deep.trusted.example"}, 200),
        ({"Origin": "http://deep.trusted.example"}, 403),
    ],
)
@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_host_and_origin_are_checked_by_the_deployments_settings(server, secret, settings, given, status, version):
    settings.CSRF_TRUSTED_ORIGINS = ["https://app.example", "https://*.trusted.example"]
    assert post(server, secret, version=version, **given).status_code == status


def test_its_own_origin_is_trusted(server, secret):
    assert post(server, secret, Origin=server).status_code == 200


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_whoever_asks_too_often_is_told_when_to_ask_again(server, alice, secret, limited, version):
    limited(api="1/hour")
    answers = [post(server, secret, version=version) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]
    assert answers[1].json()["code"] == "rate_limited"
    assert int(answers[1].headers["Retry-After"]) > 60


# -- What no client should send ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_there_is_no_stream_to_get_and_no_session_to_delete(server, secret, method, version):
    response = httpx2.request(method, f"{server}/mcp", headers=headers(secret, version=version))
    assert (response.status_code, response.headers["Allow"]) == (405, "POST")
    assert httpx2.request(method, f"{server}/mcp", headers=headers(version=version)).status_code == 401


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT"])
def test_what_ends_in_405_counts_against_nobody(server, secret, limited, method):
    limited(api="1/hour")
    for _ in range(5):
        assert httpx2.request(method, f"{server}/mcp", headers=headers(secret)).status_code == 405
    assert post(server, secret).status_code == 200
    assert post(server, secret).status_code == 429


def test_the_address_with_a_slash_is_the_same_endpoint(server, secret):
    given = {"content": json.dumps(message()), "headers": headers(secret)}
    assert httpx2.post(f"{server}/mcp/", **given).json()["result"]["tools"]
    refused = httpx2.post(f"{server}/mcp/", content=json.dumps(message()), headers=headers())
    assert (
        f'resource_metadata="{server}/.well-known/oauth-protected-resource/mcp/"' in refused.headers["WWW-Authenticate"]
    )
    document = httpx2.get(f"{server}/.well-known/oauth-protected-resource/mcp/").json()
    assert document["resource"] == f"{server}/mcp/"


def post_accepting(server, secret, accept, *, version):
    """The Accept header as it is given; None sends none."""
    host, port = urlsplit(server).hostname, urlsplit(server).port
    given = {**headers(secret, version=version), "Accept": accept}
    body = json.dumps(message(version=version)).encode()
    with closing(HTTPConnection(host, port, timeout=20)) as connection:
        connection.putrequest("POST", "/mcp", skip_accept_encoding=True)
        for name, value in {**given, "Content-Length": str(len(body))}.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        return response, response.read().decode()


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize(
    "accept", [None, "*/*", "application/*", "application/json", "text/event-stream;q=0.5, */*;q=0.1", ""]
)
def test_without_an_accept_header_and_with_any_the_answer_is_json(server, secret, accept, version):
    response, body = post_accepting(server, secret, accept, version=version)
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)["result"]["tools"]


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("accept", ["text/event-stream", "text/*"])
def test_a_client_that_accepts_only_a_stream_gets_one_event(server, secret, accept, version):
    response, body = post_accepting(server, secret, accept, version=version)
    assert (response.status, response.headers["Content-Type"]) == (200, "text/event-stream")
    assert response.headers["Cache-Control"] == "private, no-store"
    assert body.startswith("event: message\ndata: {") and body.endswith("}\n\n")
    assert json.loads(body.removeprefix("event: message\ndata: "))["result"]["tools"]


def test_a_client_that_accepts_neither_is_refused(server, secret):
    response, _ = post_accepting(server, secret, "text/html", version=LEGACY)
    assert response.status == 406


PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version,mcp-session-id,last-event-id,mcp-method,mcp-name",
}


@pytest.mark.parametrize(
    "path", ["/mcp", "/mcp/", "/oauth/token/", "/oauth/register/", "/.well-known/oauth-protected-resource/mcp"]
)
@pytest.mark.parametrize(
    ("origins", "trusted", "origin", "is_allowed"),
    [
        (["https://app.example"], [], "https://app.example", True),
        ([], ["https://app.example"], "https://app.example", True),
        (["*"], [], "http://localhost:6274", True),
        (["https://app.example"], [], "https://evil.example", False),
        ([], [], "https://app.example", False),
    ],
)
def test_the_preflight_of_a_trusted_origin_is_answered(server, settings, path, origins, trusted, origin, is_allowed):
    settings.CORS_ORIGINS, settings.CSRF_TRUSTED_ORIGINS = origins, trusted
    answer = httpx2.options(f"{server}{path}", headers={"Origin": origin, **PREFLIGHT})
    allowed = {name.strip().lower() for name in answer.headers["Access-Control-Allow-Headers"].split(",")}
    assert (answer.status_code, answer.headers.get("Access-Control-Allow-Origin")) == (
        (200, origin) if is_allowed else (400, None)
    )
    assert set(PREFLIGHT["Access-Control-Request-Headers"].split(",")) <= allowed
    assert "POST" in answer.headers["Access-Control-Allow-Methods"]
    assert "Access-Control-Allow-Credentials" not in answer.headers


def test_a_page_of_a_trusted_origin_reads_the_session_and_the_refusal(server, secret, settings):
    settings.CORS_ORIGINS = ["https://app.example"]
    for answer in (post(server, secret, Origin="https://app.example"), post(server, Origin="https://app.example")):
        assert answer.headers["Access-Control-Allow-Origin"] == "https://app.example"
        assert {"mcp-session-id", "www-authenticate"} <= set(
            answer.headers["Access-Control-Expose-Headers"].lower().split(", ")
        )
        assert "Origin" in answer.headers["Vary"]
    assert "Access-Control-Allow-Origin" not in post(server, secret).headers
    # The consent page is for the user's own browser alone.
    page = httpx2.get(f"{server}/oauth/authorize/", headers={"Origin": "https://app.example"})
    assert "Access-Control-Allow-Origin" not in page.headers


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize(
    "body", [b"", b"no json", b"\xff\xfe", b"[]", b'"text"', b"[" * 10_000 + b"]" * 10_000, b'{"jsonrpc": "2.0"}']
)
def test_what_is_no_message_is_refused(server, secret, version, body):
    response = post(server, secret, version=version, body=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] in (-32700, -32600, -32602)


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_a_deeply_nested_argument_is_refused(server, secret, version):
    deep = json.dumps(
        message("tools/call", {"name": "search_chat_history", "arguments": {"query": 0}}, version=version)
    )
    body = deep.replace('"query": 0', '"query": ' + "[" * 10_000 + "]" * 10_000).encode()
    response = post(server, secret, "tools/call", {"name": "search_chat_history"}, version=version, body=body)
    assert response.status_code == 400


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_a_query_of_nearly_a_megabyte_is_a_wrong_input_and_a_larger_body_too_large(server, secret, version):
    long = call(server, secret, "search_chat_history", {"query": "x" * 1_000_000}, version=version)
    assert long.json()["result"]["isError"] is True
    for size in (1_048_576, 5_000_000):
        larger = call(server, secret, "search_chat_history", {"query": "x" * size}, version=version)
        assert (larger.status_code, larger.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize(
    "arguments",
    [{"query": "cat", "unknown": 1}, {"query": True}, {"query": ["cat"]}, {"query": "a", "limit": "five"}, {}],
)
def test_wrong_arguments_are_results(server, secret, version, arguments):
    response = call(server, secret, "search_chat_history", arguments, version=version)
    assert response.status_code == 200
    assert json.loads(response.json()["result"]["content"][0]["text"])["code"] == "validation_error"


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("query", ["a\x00b", "%_'\\", "🐈", "a \ud800", "'; drop table users; --"])
def test_any_text_is_searched(server, secret, version, query):
    response = call(server, secret, "search_chat_history", {"query": query}, version=version)
    assert "isError" not in response.json()["result"] or response.json()["result"]["isError"] is False


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_two_calls_with_one_id_are_both_answered(server, alice, secret, version):
    a_turn(alice, "I adopted a cat")
    answers = {}

    async def one(query):
        async with httpx2.AsyncClient(timeout=20) as http:
            given = headers(secret, version=version, method="tools/call", name="search_chat_history")
            params = {"name": "search_chat_history", "arguments": {"query": query}}
            content = json.dumps(message("tools/call", params, version=version, request_id=7))
            answers[query] = (await http.post(f"{server}/mcp", content=content, headers=given)).json()

    async def both():
        async with anyio.create_task_group() as group:
            group.start_soon(one, "cat")
            group.start_soon(one, "dog")

    anyio.run(both)
    assert {query: answer["result"]["structuredContent"]["query"] for query, answer in answers.items()} == {
        "cat": "cat",
        "dog": "dog",
    }


# -- Stopping ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def a_slow_search(monkeypatch):
    """A search that asks the database for a minute of sleep."""

    def slow(**_):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(60)")

    monkeypatch.setattr("agent_tools.tools.chat_history.search", slow)


def sleeping():
    """Asked as the application, since only who runs a statement is told what it is."""
    with as_the_application(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE %s AND pid <> pg_backend_pid()",
            ["SELECT pg_sleep%"],
        )
        return cursor.fetchone()[0]


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def awaited(condition, seconds):
    await in_thread(wait_until, condition, seconds)


async def in_thread(function, *args):
    def work():
        try:
            return function(*args)
        finally:
            connections.close_all()

    return await anyio.to_thread.run_sync(work)


def test_a_blank_behind_a_header_is_no_part_of_it(server, secret):
    name = "search_chat_history"
    body = json.dumps(message("tools/call", {"name": name, "arguments": {"query": "cat"}})).encode()
    given = headers(secret, method="tools/call", name=f"{name} \t", **{"Content-Length": str(len(body))})
    lines = "".join(f"{field}: {value}\r\n" for field, value in given.items())
    address = urlsplit(server)
    with socket.create_connection((address.hostname, address.port), timeout=20) as raw:
        # By hand: a client's library would take the blank away.
        raw.sendall(f"POST /mcp HTTP/1.1\r\nHost: {address.netloc}\r\nConnection: close\r\n{lines}\r\n".encode() + body)
        answer = raw.makefile("rb").read().decode()
    assert answer.startswith("HTTP/1.1 200")
    assert "no chat history found" in answer


@pytest.mark.parametrize("version", [LEGACY, MODERN])
def test_the_statement_of_a_client_who_leaves_is_cancelled(server, secret, a_slow_search, version):
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(
            f"{server}/mcp",
            content=json.dumps(
                message("tools/call", {"name": "search_chat_history", "arguments": {"query": "cat"}}, version=version)
            ),
            headers=headers(secret, version=version, method="tools/call", name="search_chat_history"),
            timeout=1,
        )
    wait_until(lambda: sleeping() == 0, 3)
    assert post(server, secret, version=version).status_code == 200


@pytest.mark.parametrize("mode", ["legacy", MODERN])
def test_a_call_that_the_official_client_cancels_is_stopped(server, secret, a_slow_search, mode):
    async def work():
        async with connected(server, secret, mode) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "search_chat_history", {"query": "cat"})
                await awaited(lambda: sleeping() == 1, 5)
                group.cancel_scope.cancel()
            await awaited(lambda: sleeping() == 0, 3)
            return await client.list_tools(cache_mode="bypass")

    assert anyio.run(work).tools


def cancel(server, secret, request_id, session_id):
    body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}
    response = post(server, secret, version=LEGACY, body=json.dumps(body).encode(), **{"Mcp-Session-Id": session_id})
    assert response.status_code == 202


@pytest.mark.parametrize(
    ("own_token", "session_id", "request_id", "is_stopped"),
    [(True, "s", 7, True), (True, "other", 7, False), (True, "s", 8, False), (False, "s", 7, False)],
)
def test_nobody_stops_anothers_call(
    server, alice, secret, a_slow_search, own_token, session_id, request_id, is_stopped
):
    canceller = secret if own_token else create_token(user=alice).secret
    answers = []

    async def slow():
        async with httpx2.AsyncClient(timeout=5) as http:
            params = {"name": "search_chat_history", "arguments": {"query": "cat"}}
            content = json.dumps(message("tools/call", params, version=LEGACY, request_id=7))
            given = headers(secret, version=LEGACY, **{"Mcp-Session-Id": "s"})
            answers.append((await http.post(f"{server}/mcp", content=content, headers=given)).json())

    async def work():
        with anyio.move_on_after(2):
            async with anyio.create_task_group() as group:
                group.start_soon(slow)
                await awaited(lambda: sleeping() == 1, 5)
                await in_thread(cancel, server, canceller, request_id, session_id)

    anyio.run(work)
    assert [answer["error"]["code"] for answer in answers] == ([-32800] if is_stopped else [])
    wait_until(lambda: sleeping() == 0, 3)


def test_a_session_is_named_when_it_begins(server, secret):
    requested = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "by-hand", "version": "1"}}
    names = {post(server, secret, "initialize", requested, version=LEGACY).headers["Mcp-Session-Id"] for _ in range(2)}
    assert len(names) == 2
    assert "Mcp-Session-Id" not in post(server, secret).headers


def revoke(user):
    AccessToken.objects.all().delete()


def deactivate(user):
    type(user).objects.update(is_active=False)


@pytest.mark.parametrize("version", [LEGACY, MODERN])
@pytest.mark.parametrize("throw_out", [revoke, deactivate])
def test_whoever_is_thrown_out_in_the_middle_of_a_call_is_out_within_five_seconds(
    server, alice, secret, a_slow_search, throw_out, version
):
    answers = []

    def slow():
        answers.append(call(server, secret, "search_chat_history", {"query": "cat"}, version=version))

    async def work():
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.to_thread.run_sync, slow)
            await awaited(lambda: sleeping() == 1, 5)
            await in_thread(throw_out, alice)
            started = time.monotonic()
        return time.monotonic() - started

    assert anyio.run(work) < 5
    assert answers[0].status_code == 401
    wait_until(lambda: sleeping() == 0, 3)
