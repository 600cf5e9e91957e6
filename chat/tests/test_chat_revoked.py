"""Whoever is thrown out while an answer streams: out within five seconds, the answer kept, the model let go."""

import time

import pytest
from asgiref.sync import sync_to_async
from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from chat.answers import hub
from chat.answers.writer import AnswerWriter
from chat.tests.test_chat_stream import the_turn
from core.isolation.acting import Caller, acting_as
from intake import revocation
from intake.chats import services
from intake.chats.deleting import delete_account
from intake.models import Turn
from intake.revocation import session_is_good
from testing.model_server import Say
from testing.serving import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

CHAT = "/api/v1/intake/chat"
# For longer than anybody may stay.
AT_LENGTH = Say(tuple(f"word{n} " for n in range(400)), seconds_apart=0.05)


def revoke(person, client):
    apps.get_model("agent_tools.AccessToken").objects.filter(user=person).delete()


def expire(person, client):
    apps.get_model("agent_tools.AccessToken").objects.filter(user=person).update(expiry="2020-01-01T00:00:00Z")


def log_out(person, client):
    client.post("/logout/", headers=client._csrf())


def change_the_password(person, client):
    person.set_password("another long password")
    person.save()


def deactivate(person, client):
    get_user_model().objects.update(is_active=False)


def delete(person, client):
    delete_account(user=person)


BY_TOKEN = [(True, revoke), (True, expire), (True, deactivate), (True, delete)]
BY_SESSION = [(False, log_out), (False, change_the_password), (False, deactivate), (False, delete)]


@pytest.fixture
def client_of(person, new_client, log_in):
    def client_of(*, has_token):
        if not has_token:
            return log_in(person)
        client = new_client()
        _, secret = apps.get_model("agent_tools.AccessToken").objects.issue(user=person)
        client.headers["Authorization"] = f"Bearer {secret}"
        return client

    return client_of


def read(client, lines, until):
    """What comes up to the line with this word, or to the end."""
    for line in lines:
        if until in line:
            return line
    return None


@pytest.mark.parametrize(("has_token", "throw_out"), [*BY_TOKEN, *BY_SESSION])
def test_whoever_is_thrown_out_is_out_within_five_seconds(person, client_of, language_model, has_token, throw_out):
    model = language_model(AT_LENGTH)
    client = client_of(has_token=has_token)
    headers = {} if has_token else client._csrf()
    with client.stream("POST", CHAT, json={"message": "Talk"}, headers=headers) as response:
        lines = response.iter_lines()
        assert read(client, lines, "word3 ")
        throw_out(person, client)
        thrown_out_at = time.monotonic()
        assert read(client, lines, "event: error")
        told = next(lines)
        assert list(lines) == [""]
        assert time.monotonic() - thrown_out_at < 5
    assert '"code":"authentication_required"' in told
    assert wait_until(lambda: model.closed_at) - thrown_out_at < 5
    if throw_out is delete:
        assert not Turn.objects.exists()
    else:
        wait_until(lambda: the_turn().status == "interrupted")
        assert the_turn().assistant_message.startswith("word0 word1 word2 word3 ")


@pytest.mark.parametrize("has_token", [True, False])
def test_whoever_may_stay_hears_the_whole_answer(client_of, language_model, has_token, monkeypatch):
    monkeypatch.setattr(revocation, "CHECKED_EVERY_SECONDS", 0.05)
    language_model(Say(("Still ", "here", "."), seconds_apart=0.3))
    client = client_of(has_token=has_token)
    assert client.events("Talk")[-1].name == "done"
    assert the_turn().assistant_message == "Still here."


def test_other_sessions_and_tokens_of_the_person_go_on(person, client_of, language_model, monkeypatch):
    monkeypatch.setattr(revocation, "CHECKED_EVERY_SECONDS", 0.05)
    language_model(Say(tuple(f"word{n} " for n in range(20)), seconds_apart=0.05))
    client, other = client_of(has_token=False), client_of(has_token=False)
    with client.stream("POST", CHAT, json={"message": "Talk"}, headers=client._csrf()) as response:
        lines = response.iter_lines()
        read(client, lines, "word3 ")
        log_out(person, other)
        revoke(person, other)
        assert read(client, lines, "event: done")


def test_a_database_that_is_away_for_a_moment_throws_nobody_out(person, client_of, language_model, monkeypatch):
    monkeypatch.setattr(revocation, "CHECKED_EVERY_SECONDS", 0.05)
    asked = []

    def away_at_first(*args, **kwargs):
        asked.append(args)
        if len(asked) == 1:
            raise OperationalError("gone")
        return session_is_good(*args, **kwargs)

    monkeypatch.setattr("intake.revocation.session_is_good", away_at_first)
    # Longer than a round that another answer has begun.
    language_model(Say(("Still ", "here", "."), seconds_apart=1.2))
    assert client_of(has_token=False).events("Talk")[-1].name == "done"
    assert len(asked) > 1


async def a_turn_begun(caller):
    return await sync_to_async(acting_as(caller)(services.create_turn))(
        services.TurnRequest(message="Talk"), caller=caller, now=timezone.now()
    )


async def test_a_reader_who_stopped_reading_is_thrown_out_too_and_gets_nothing_more(
    person, language_model, monkeypatch
):
    monkeypatch.setattr(revocation, "CHECKED_EVERY_SECONDS", 0.05)
    model = language_model(AT_LENGTH)
    caller = Caller(user_id=person.pk)
    is_in = [True]
    turn = await a_turn_begun(caller)
    hub.start_answer(AnswerWriter(turn, caller, is_authorized=lambda: is_in[0]))
    stream = hub.follow_answer(turn=turn, caller=caller, is_authorized=lambda: is_in[0])
    assert (await anext(stream)).startswith(b"event: turn")
    assert (await anext(stream)).startswith(b"event: delta")
    is_in[0] = False
    await sync_to_async(wait_until)(lambda: model.closed_at)
    assert [event.partition(b"\n")[0] async for event in stream] == [b"event: error"]


def test_a_session_is_good_for_its_own_person_alone(person, stranger):
    client = Client()
    client.force_login(person)
    key = client.session.session_key
    assert session_is_good(key, user_id=person.pk)
    assert not session_is_good(key, user_id=stranger.pk)
    for other in (None, "", "x" * 32, "no key"):
        assert not session_is_good(other, user_id=person.pk)
