"""`/settings/agents/`: who is connected, what they sent, the lines to copy; and the way out."""

import json

import pytest
from django.test import Client
from django.utils import timezone

from agent_tools.authentication import create_token
from agent_tools.models import AccessToken, TokenScope
from agent_tools.tests.callers import call, client_of
from agent_tools.tests.test_oauth import connected
from chat.pages.agents import CLIENTS
from core.isolation.acting import acting_as
from intake.tests.factories import a_person
from memory import documents
from recollect_cli import clients

pytestmark = pytest.mark.django_db

URL = "/settings/agents/"


@pytest.fixture
def session(alice):
    client = Client()
    client.force_login(alice)
    return client


def page(session):
    return session.get(URL).content.decode()


def test_it_shows_every_client_that_the_command_line_installs(session):
    shown = page(session)
    assert tuple(client for client, _, _ in CLIENTS) == clients.CLIENTS
    assert all(f"recollect install {client}" in shown for client in clients.CLIENTS)
    assert "recollect login http://testserver" in shown
    assert "http://testserver/mcp" in shown
    assert "?tools=few" in shown
    assert "None is connected." in shown


def test_tokens_and_connections_are_listed_and_ended_there(session, alice):
    create_token(user=alice, name="recollect on a laptop", scopes=[TokenScope.SEARCH])
    create_token(user=a_person("bob@example.com"), name="Bob's")
    connected(alice)
    shown = page(session)
    assert "recollect on a laptop" in shown and "Agent" in shown
    assert "Bob" not in shown
    for action in [part.split('"')[0] for part in shown.split('action="/settings/')[1:]]:
        response = session.post(f"/settings/{action}", {"page": "agents"})
        assert (response.status_code, response.headers["Location"]) == (302, URL)
    assert "None is connected." in page(session)
    assert not AccessToken.objects.filter(user=alice).exists()


def test_what_an_agent_sent_is_counted_with_the_way_to_undo_it(session, alice):
    token = create_token(user=alice, scopes=[TokenScope.CAPTURE]).secret
    turn = {"uuid": "q1", "saidAt": "2026-03-01T12:00:00Z", "user": "How?", "answer": "So."}
    body = {"product": "claude-code", "session": "s-1", "turns": [turn]}
    headers = {"authorization": f"Bearer {token}"}
    Client(headers=headers).post("/api/v1/sessions/append/", json.dumps(body), content_type="application/json")
    shown = page(session)
    assert "Claude Code" in shown and "1 session, 1 turn." in shown
    assert 'href="/import/' in shown
    other = Client()
    other.force_login(a_person("bob@example.com"))
    assert "What they sent" not in page(other)


def test_who_is_not_logged_in_is_led_to_the_log_in():
    response = Client().get(URL)
    assert (response.status_code, response.headers["Location"].split("?")[0]) == (302, "/login/")


def test_the_menu_names_it_in_words_once_logged_in(session):
    assert f'href="{URL}"' in session.get("/").content.decode()
    assert f'href="{URL}"' not in Client().get("/").content.decode()


def test_what_a_token_got_unasked_is_counted(session, alice):
    with acting_as(alice):
        documents.append(user=alice, day=None, text="The worktop is oak", now=timezone.now())
    agent = client_of(alice, name="recollect on a laptop")
    call(agent, "get_context", {"for": "session"})
    tokens = call(agent, "get_context", {"for": "session"}).json()["tokens"]
    assert call(agent, "get_context", {"for": "prompt", "query": "do it"}).json()["nothing"] is True
    shown = " ".join(page(session).split())
    assert f"it got, unasked: 2 texts for sessions, 0 for prompts; {2 * tokens} tokens." in shown
    AccessToken.objects.update(got={"2020-01-01": [1, 1, 100]})
    assert "unasked" not in page(session)
    # The next day drops what is older than a month.
    call(agent, "get_context", {"for": "session"})
    ((counts,),) = [list(each.got.values()) for each in AccessToken.objects.filter(user=alice).exclude(got={})]
    assert counts == [1, 0, tokens]
