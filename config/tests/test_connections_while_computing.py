"""No request holds a database connection while it computes for long, or waits for anything but the database."""

import sys
from datetime import date

import pytest
from django.db import connection
from django.test import Client

from core.isolation.acting import acting_as
from intake.models import Turn
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents
from memory.tests.test_embedders_openai import Endpoint
from testing import held

pytestmark = pytest.mark.django_db(transaction=True)

# The cells that a row lacks are added by the parser: a page of a megabyte from a few kilobytes.
WIDE = "|a" * 2_000 + "|\n" + "|-" * 2_000 + "|\n" + "|a\n" * 30
DENSE = "".join(f"*a* `b` [c](https://example.com/{number}) **d**\n\n" for number in range(1_700))
DAY = date(2026, 2, 28)


@pytest.fixture
def alice():
    return a_person("alice@example.com")


@pytest.fixture
def browser(alice):
    client = Client(raise_request_exception=True)
    client.force_login(alice)
    # The first page of a process reads the templates.
    client.get("/")
    return client


def a_chat(alice, text, turns):
    turn = a_turn(alice, "Draw this", text)
    for _ in range(turns - 1):
        turn = a_turn(alice, "And this", text, conversation=turn.conversation)
    return f"/c/{turn.conversation_id}/"


def a_chat_of_tables(alice):
    return a_chat(alice, WIDE, 10)


def a_chat_of_long_answers(alice):
    return a_chat(alice, DENSE, 5)


def a_chat_of_many_calls(alice):
    path = a_chat(alice, "Done", 1)
    calls = [
        {"id": str(at), "name": "search_memory", "input": {}, "summary": "[a](/b) *c* `d` " * 600} for at in range(40)
    ]
    Turn.objects.update(tool_calls=calls)
    return path


def an_earlier_version(alice):
    words = [str(number % 100) for number in range(499)]
    before, after = ("\n".join(f"{word}\n{sign}{at}" for at, word in enumerate(words)) for sign in "ab")
    documents.create(user=alice, day=None, content=f"{before}\n{DENSE}{WIDE}", now=NOW)
    documents.replace(user=alice, day=None, content=f"{after}\n{DENSE}{WIDE}", expected=None, now=NOW)
    return "/memory/history/?version=1"


def a_memory(alice):
    documents.create(user=alice, day=None, content=DENSE + WIDE, now=NOW)
    return "/memory/"


def a_log(alice):
    documents.create(user=alice, day=DAY, content=DENSE + WIDE, now=NOW)
    return f"/memory/logs/{DAY}/"


def a_preview(alice):
    return "/memory/preview/"


INPUTS = [
    a_chat_of_tables,
    a_chat_of_long_answers,
    a_chat_of_many_calls,
    an_earlier_version,
    a_memory,
    a_log,
    a_preview,
]


@pytest.mark.parametrize("made", INPUTS)
def test_at_most_a_tenth_is_computed_with_a_connection(alice, browser, made):
    with acting_as(alice):
        path = made(alice)
    send = (lambda: browser.post(path, {"content": DENSE + WIDE})) if made is a_preview else (lambda: browser.get(path))
    with held.watched() as seen:
        answer = send()
    assert answer.status_code == 200
    sys.stdout.write(
        f"{made.__name__}: {seen.with_connection:.2f} of {seen.seconds:.2f} s, {len(answer.content):,} bytes\n"
    )
    assert seen.seconds > 0.8
    assert seen.with_connection <= seen.seconds / 10
    assert seen.waits == []


@pytest.fixture
def far_model(settings, monkeypatch):
    """The embedding model is at an endpoint. A connection goes back as to a pool, which the tests have none of."""
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", {})
    endpoint = Endpoint()
    endpoint.start()
    options = {"base_url": endpoint.url, "model": "tiny", "dimensions": 16}
    settings.EMBEDDER = {"BACKEND": "memory.backends.openai_compatible.OpenAICompatibleEmbedder", "OPTIONS": options}
    yield endpoint
    endpoint.stop()


@pytest.mark.parametrize("path", ["/search/?q=", "/search/live/?q=", "/api/v1/tools/search_history/"])
def test_a_search_waits_for_the_embedding_model_without_a_connection(alice, browser, far_model, path):
    with acting_as(alice):
        a_turn(alice, "The garden is in bloom")
    words = "where is the garden in bloom"
    with held.watched() as seen:
        answer = (
            browser.get(path + words)
            if "?" in path
            else browser.post(path, {"query": words}, content_type="application/json")
        )
    assert (answer.status_code, len(far_model.requests)) == (200, 1)
    assert seen.waits == []
