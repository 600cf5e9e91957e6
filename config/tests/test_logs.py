"""Logs name ids, counts and codes; what somebody said is in none of them, whatever goes wrong."""

import logging

import pytest
from django.db import DataError, OperationalError
from django.test import Client

from intake.models import User
from intake.tests.factories import NOW, a_turn
from memory import index
from memory.backends.embedders import EmbedderError, get_embedder
from testing.model_server import BreakOff, CallTool, Refuse, Say

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "kwyjibo"
SEARCH = "/api/v1/tools/search_chat_history/"


def test_the_handler_hears_everything(logged):
    logging.getLogger("chat.answers.hub").debug("heard %s", SECRET)
    assert logged.about(SECRET)


def test_chatting_and_searching_say_nothing_of_it(logged, person, log_in, language_model):
    language_model(CallTool("search_chat_history", {"query": SECRET}), Say((f"I heard {SECRET}.",)))
    client = log_in(person)
    assert client.events(f"The word is {SECRET}")[-1].name == "done"
    index.embed_pending()
    answer = client.post(SEARCH, json={"query": SECRET}, headers=client._csrf())
    assert SECRET in answer.text
    client.get("/", params={"q": SECRET})
    assert logged.about(SECRET) == []


@pytest.mark.parametrize("failure", [Refuse(500), Refuse(401), BreakOff((f"Half a {SECRET}",))])
def test_a_model_that_fails_says_nothing_of_it(logged, visitor, language_model, failure):
    language_model(failure, failure)
    events = visitor.events(f"The word is {SECRET}")
    assert events[-1].name == "error"
    assert SECRET not in str(events[-1].data)
    assert logged.about(SECRET) == []


@pytest.mark.parametrize(
    "body",
    [
        {"query": SECRET * 100},
        {"query": [SECRET]},
        {"query": SECRET, "limit": SECRET},
        {SECRET: SECRET},
        SECRET,
    ],
)
def test_input_that_is_refused_is_not_quoted(logged, person, log_in, body):
    client = log_in(person)
    answer = client.post(SEARCH, json=body, headers=client._csrf())
    assert answer.status_code == 400
    assert "".join(answer.json().get("errors", {}).get("query", [])).count(SECRET) == 0
    assert logged.about(SECRET) == []


@pytest.mark.parametrize("error", [OperationalError, DataError, RuntimeError])
def test_a_failure_while_something_is_saved_says_nothing_of_it(logged, person, monkeypatch, error):
    """Also the page of an unexpected failure, and the report of it, which holds the local variables of every frame."""

    def fail(*request, **fields):
        raise error("the server is away")

    monkeypatch.setattr("chat.rest.chat.create_turn", fail)
    client = Client(raise_request_exception=False)
    client.force_login(person)
    answer = client.post("/api/v1/intake/chat", {"message": f"The word is {SECRET}"}, content_type="application/json")
    assert answer.status_code in (500, 503)
    assert SECRET not in answer.text
    assert logged.about(SECRET) == []


def test_a_failed_login_names_neither_email_nor_password(logged):
    Client().post("/login/", {"username": f"{SECRET}@example.com", "password": f"{SECRET} password"})
    assert logged.about(SECRET) == []


def test_a_text_that_cannot_be_embedded_is_not_quoted(logged, monkeypatch):
    alice = User.objects.create_user("alice@example.com", "password")

    def fail(texts):
        raise RuntimeError("the model broke") if "Second" in texts[0] else EmbedderError("It is away.")

    a_turn(alice, f"First: {SECRET}")
    monkeypatch.setattr(get_embedder(), "embed_documents", fail)
    index.embed_pending(until=NOW)
    a_turn(alice, f"Second: {SECRET}")
    index.embed_pending(until=NOW)
    assert logged.lines
    assert logged.about(SECRET) == []
