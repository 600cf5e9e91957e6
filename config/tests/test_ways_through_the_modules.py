"""How much a reader reads who follows a request from its URL: functions and their lines, which may only fall."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from django.conf import settings

from agent_tools.authentication import create_token
from agent_tools.models import ALL_SCOPES
from agent_tools.tests import callers
from agent_tools.tests.mcp_messages import call
from chat.answers import blocks
from config import asgi
from intake.models import Turn
from intake.tests.factories import a_person, a_turn
from memory import index, tasks
from memory.index import worker, writer
from memory.models import Embedding
from testing.examiner import as_a_worker
from testing.model_server import Say
from testing.module_counter import counted_modules
from testing.serving import serving

# Functions and their lines.
MOST = {
    # Ten lines say which words no text has.
    "The way of a search": (153, 1_575),
    # Sixty lines ask whose tools are offered and whether the answer goes on from a pause.
    "The way of a turn": (343, 3_240),
    "A second tab": (120, 980),
    # Ten functions write what is found within a budget, and three leave out what a person never wants to see again.
    "An MCP call": (166, 1_625),
}


@pytest.mark.django_db
def test_a_hybrid_search_over_rest_runs_through_few_modules():
    alice = a_person("alice")
    a_turn(alice, "I adopted a cat named Miso")
    a_turn(alice, "What do dogs eat?")
    index.embed_pending()
    a_turn(alice, "The cat sleeps on the sofa")
    client = callers.client_of(alice)
    body = {"query": "my cat", "mode": "hybrid"}
    with counted_modules() as counter:
        for _ in range(4):
            counter.count_from_now()
            answer = callers.call(client, "search_chat_history", body)
    assert answer.json()["totalFound"] == 3
    check("The way of a search", counter)


@pytest.fixture
def _watched_server(monkeypatch, transactional_db):
    """The whole application in threads that the counter sees."""
    monkeypatch.setattr(blocks, "_threads", ThreadPoolExecutor(2))
    # What a process prepares beside its first requests is no part of any of them.
    is_warm, warm_up = threading.Event(), asgi._warm_up

    async def noted() -> None:
        await warm_up()
        is_warm.set()

    monkeypatch.setattr(asgi, "_warm_up", noted)
    with counted_modules() as counter, serving(asgi.application) as address:
        assert is_warm.wait(60)
        yield counter, address


@pytest.fixture
def server(_watched_server):
    return _watched_server[1]


@pytest.mark.medium
def test_a_message_runs_through_few_modules_from_its_url_to_its_vector(
    _watched_server, person, log_in, language_model, monkeypatch
):
    """The message that wakes a worker is not sent: the worker's task runs here, as the worker's role."""
    counter, address = _watched_server
    is_sent = threading.Event()
    monkeypatch.setattr(writer.current_app, "send_task", lambda *_, **__: is_sent.set())
    for name in ("embed_pending", "has_pending"):
        monkeypatch.setattr(index, name, getattr(worker, name))
    language_model(*[Say(("Mice, **mostly**.",)) for _ in range(5)])
    client = log_in(person)
    conversation_id = None
    for _ in range(5):
        is_sent.clear()
        monkeypatch.setattr(writer, "wake_worker", writer.Waker().wake_worker)
        counter.count_from_now()
        events = client.events("What do cats eat?", conversation_id=conversation_id)
        conversation_id = events[-1].data["conversationId"]
        assert is_sent.wait(10)
        with ExitStack() as stack:
            with counter.paused():
                stack.enter_context(as_a_worker())
            tasks.embed_pending()
    turn = Turn.objects.order_by("pk").last()
    assert (turn.status, turn.assistant_message) == (Turn.Status.COMPLETE, "Mice, **mostly**.")
    assert Embedding.objects.waiting().count() == 0
    assert Embedding.objects.filter(chunk_index=turn.turn_number).exists()
    check("The way of a turn", counter)
    for _ in range(3):
        counter.count_from_now()
        # A second tab, which has the beginning.
        headers = {"Last-Event-ID": "1-1", "Prefer": "blocks"}
        events = client.get(f"/api/v1/intake/turns/{turn.pk}/events", headers=headers)
        assert "event: done" in events.text
    check("A second tab", counter)
    secret = create_token(user=person, scopes=ALL_SCOPES).secret
    for _ in range(4):
        counter.count_from_now(at_once=True)
        found = call(address, secret, "search_chat_history", {"query": "cats"})
    assert found.json()["result"]["structuredContent"]["totalFound"] == 5
    check("An MCP call", counter)


# The engine of the database, which every statement runs through.
BESIDE_EVERY_WAY = {"config/database/base.py"}


def check(title, counter):
    modules = [module for module in counter.modules if module not in BESIDE_EVERY_WAY]
    figures = len(counter.functions), counter.lines
    listed = "\n  ".join(["{}: {} functions, {} lines".format(title, *figures), *modules])
    sys.stdout.write(f"{listed}\n")
    assert all(figure <= most for figure, most in zip(figures, MOST[title], strict=True)), listed
    assert not title.startswith("The way") or [each for each in modules if f"`{each}`" not in section(title)] == []


def section(title):
    page = Path(settings.BASE_DIR, "docs", "architecture.md").read_text()
    (found,) = [part for part in page.split("\n## ") if part.startswith(f"{title}\n")]
    return found
