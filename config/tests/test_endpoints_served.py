"""The endpoints that only the served application has: MCP, the chat and its tools, the export, with each guard away in turn."""

import asyncio
import json
from datetime import date
from types import SimpleNamespace

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from agent_tools.tests.mcp_messages import post
from chat.agent.context import ChatDeps
from chat.agent.tools import tools_of
from config.tests.endpoints import house
from config.tests.endpoints.matrix import PERSONAL_QUERYSETS, Answer, alike, belongings
from config.tests.endpoints.registered import CALL, MCP, MCP_TOOLS, TOOLS
from core.isolation.checks import personal_models
from intake.models import ActivityEntry
from intake.tests.factories import NOW, a_visitor, caller_for
from testing.examiner import take_policies_away

pytestmark = [pytest.mark.extended, pytest.mark.medium, pytest.mark.django_db(transaction=True)]

READING = {name: probes for name, probes in TOOLS.items() if name not in ("save_memory", "append_daily_log")}
# What says of an answer that it goes on, or ends, and not what it says.
WITHOUT_WORDS = {"an answer's end", "what is being answered"}


@pytest.fixture
def homes(server, monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    alice = house.move_in("alice", "rumpelstiltskin", day=date(2026, 2, 3))
    bob = house.move_in("bob", "kwyjibo", day=date(2026, 2, 4))
    return SimpleNamespace(alice=alice, bob=bob, address=server)


@pytest.fixture(params=["as it is", "no filters", "no policies"])
def guards(request, homes, monkeypatch):
    if request.param == "no filters":
        for queryset in PERSONAL_QUERYSETS:
            for name in {"for_user", "for_caller"} & set(dir(queryset)):
                monkeypatch.setattr(queryset, name, lambda self, *_: self.all())
    if request.param == "no policies":
        take_policies_away()
    yield request.param
    with connection.cursor() as cursor:
        for model in personal_models():
            cursor.execute(f"ALTER TABLE {model._meta.db_table} ENABLE ROW LEVEL SECURITY")


def over_mcp(homes, secret, tools):
    """What each of MCP's methods, and each tool's call, says to whoever has this token."""
    yield from ((method, post(homes.address, secret, method, version=version)) for method, version in MCP.items())
    for name, probe in ((name, probe) for name, probes in tools.items() for probe in probes):
        call = {"name": name, "arguments": homes.alice.things.fill(probe.body)}
        yield f"{name} {probe.body}", post(homes.address, secret, CALL, call)


def in_chat(homes, caller, tools):
    """What the model is told by each tool when it works for this caller."""
    elsewhere = SimpleNamespace(deps=ChatDeps(caller=caller, now=timezone.now()))
    given = {tool.name: tool for tool in tools_of(elsewhere.deps)}
    assert tools.keys() - given.keys() <= {"get_context"}, "the chat has its notes in its prompt"
    offered = {name: probes for name, probes in tools.items() if name in given}
    for name, probe in ((name, probe) for name, probes in offered.items() for probe in probes):
        try:
            result = asyncio.run(given[name].call(elsewhere, homes.alice.things.fill(probe.body))).return_value
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        yield f"the chat's {name} {probe.body}", SimpleNamespace(status_code=200, headers={}, text=result)


def streamed(homes, client, headers):
    said = {"message": house.TOPIC, "conversation_id": homes.alice.things.conversation}
    yield "the chat", client.post("/api/v1/intake/chat", json=said, headers=headers)
    path = f"/api/v1/intake/turns/{homes.alice.things.turn_id}"
    yield "an answer", client.get(f"{path}/events", headers=headers)
    yield "an answer, gone on with", client.get(f"{path}/events", headers={**headers, "Last-Event-ID": "1-1"})
    yield "an answer's end", client.post(f"{path}/stop", headers=headers)
    yield "what is being answered", client.get("/api/v1/intake/answering", headers=headers)
    yield "the export", client.get("/api/v1/account/export/", headers=headers)
    one = f"/api/v1/conversations/{homes.alice.things.conversation}/export/"
    for form in ("markdown", "json"):
        yield f"a conversation as {form}", client.get(one, params={"as": form}, headers=headers)


@pytest.fixture
def log_in(new_client):
    """By the session itself, since everybody here has a second factor."""

    def log_in(user):
        browser = Client()
        browser.force_login(user)
        client = new_client()
        client.cookies.set("sessionid", browser.session.session_key)
        return client

    return log_in


def everything_told(homes, log_in, visitor, tools=READING):
    """For each endpoint and stranger, the answer without what differs every time."""
    bob, somebody = homes.bob, a_visitor()
    session = log_in(bob.user)
    # Their export tells of each that was made before.
    ActivityEntry.objects.filter(user=bob.user).delete()
    endpoints = {
        "a person with a token": [
            *over_mcp(homes, bob.secret, {**tools, **MCP_TOOLS}),
            *streamed(homes, visitor, {"Authorization": f"Bearer {bob.secret}"}),
        ],
        "a person": [*in_chat(homes, bob.caller, tools), *streamed(homes, session, session._csrf())],
        "a visitor": [
            *over_mcp(homes, None, {**tools, **MCP_TOOLS}),
            *in_chat(homes, caller_for(somebody), tools),
            *streamed(homes, visitor, visitor._csrf()),
        ],
    }
    answers = {(who, endpoint): as_answer(got) for who, told in endpoints.items() for endpoint, got in told}
    for (who, endpoint), answer in answers.items():
        words = [*homes.alice.words, homes.alice.email_word, *(homes.bob.words if who == "a visitor" else ())]
        assert not any(word in str(answer).lower() for word in words), f"{who} is told by {endpoint}: {answer}"
        assert answer.status < 500, f"{endpoint} broke for {who}: {answer}"
    known = [homes.alice.things.conversation, homes.alice.things.record]
    return {key: alike(answer, known=known) for key, answer in answers.items()}


def as_answer(response):
    kept = {"content-type", "cache-control", "www-authenticate", "allow"}
    headers = "\n".join(f"{name}: {value}" for name, value in sorted(response.headers.items()) if name in kept)
    return Answer(response.status_code, headers, response.text)


def test_nobody_learns_anything_of_somebody_else_from_the_served_application(homes, guards, log_in, new_client):
    before = belongings(homes.alice)
    visitor = new_client()
    told = everything_told(homes, log_in, visitor)
    assert belongings(homes.alice) == before
    house.move_out(homes.alice)
    assert everything_told(homes, log_in, visitor) == told


def test_what_somebody_else_writes_by_a_tool_is_theirs(homes, log_in, new_client):
    before = belongings(homes.alice)
    writing = {name: probes for name, probes in TOOLS.items() if name not in READING}
    everything_told(homes, log_in, new_client(), writing)
    assert belongings(homes.alice) == before


def test_the_owner_gets_it_all(homes, log_in):
    alice = homes.alice
    own = SimpleNamespace(alice=alice, address=homes.address)
    session = log_in(alice.user)
    told = [*over_mcp(own, alice.secret, {**READING, **MCP_TOOLS}), *in_chat(own, alice.caller, READING)]
    for endpoint, got in [*told, *streamed(own, session, session._csrf())]:
        assert got.status_code == 200, endpoint
        assert endpoint in {*MCP, *WITHOUT_WORDS} or alice.words[0] in got.text.lower(), f"{endpoint}: {got.text}"
    before = belongings(alice)
    for name in set(TOOLS) - set(READING):
        body = alice.things.fill(TOOLS[name][0].body)
        got = post(homes.address, alice.secret, CALL, {"name": name, "arguments": body})
        assert not json.loads(got.text)["result"].get("isError"), got.text
        assert belongings(alice) != before
        before = belongings(alice)
