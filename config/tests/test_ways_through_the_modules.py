"""How many modules a reader opens who follows a request: few enough to hold in the head (docs/architecture.md)."""

import sys
import threading
from pathlib import Path

import pytest
from django.conf import settings

from agent_tools.tests import callers
from core.isolation.acting import Caller, acting_as
from intake.chats import services
from intake.models import Turn
from intake.tests.factories import NOW, a_person, a_turn
from memory import index, tasks
from memory.index import worker, writer
from memory.models import Embedding
from testing.examiner import as_a_worker
from testing.module_counter import counted_modules

pytestmark = pytest.mark.django_db

MOST_FOR_A_SEARCH = 19
MOST_FOR_A_SAVE = 16


def test_a_hybrid_search_over_rest_runs_through_few_modules():
    alice = a_person("alice")
    a_turn(alice, "I adopted a cat named Miso")
    a_turn(alice, "What do dogs eat?")
    index.embed_pending()
    a_turn(alice, "The cat sleeps on the sofa")
    client = callers.client_of(alice)
    body = {"query": "my cat", "mode": "hybrid"}
    for _ in range(3):
        callers.call(client, "search_chat_history", body)
    with counted_modules() as counter:
        answer = callers.call(client, "search_chat_history", body)
    assert answer.json()["totalFound"] == 3
    check("The way of a search", counter.modules, MOST_FOR_A_SEARCH)


@pytest.mark.django_db(transaction=True)
def test_a_turn_runs_through_few_modules_from_its_two_saves_to_its_stored_vector(monkeypatch):
    """The message that wakes a worker is not sent: the worker's task runs here, as the worker's role."""
    alice, is_sent = a_person("alice"), threading.Event()
    conversation = a_turn(alice, "I adopted a cat named Miso").conversation
    monkeypatch.setattr(writer.current_app, "send_task", lambda *_, **__: is_sent.set())
    for name in ("embed_pending", "has_pending"):
        monkeypatch.setattr(index, name, getattr(worker, name))
    for _ in range(2):
        # A thread that starts within the block is counted.
        monkeypatch.setattr(writer, "wake_worker", writer.Waker().wake_worker)
        with counted_modules() as saving:
            turn = say(alice, conversation)
            assert is_sent.wait(5)
        with as_a_worker(), counted_modules() as embedding:
            tasks.embed_pending()
    assert Embedding.objects.waiting().count() == 0
    assert Embedding.objects.filter(chunk_index=turn.turn_number).exists()
    check("The way of a turn", list(dict.fromkeys([*saving.modules, *embedding.modules])), MOST_FOR_A_SAVE)


def say(user, conversation):
    """As the chat does."""
    caller = Caller(user_id=user.pk)
    with acting_as(caller):
        turn = services.begin_turn(caller=caller, message="What do cats eat?", conversation_id=conversation.pk, now=NOW)
    with acting_as(caller):
        services.finish_turn(turn_id=turn.pk, answer=services.Answer(text="Mice.", status=Turn.Status.COMPLETE))
    return turn


# Every use of the database looks at the deadline of its request; docs/architecture.md names both once.
BESIDE_EVERY_WAY = {"core/resilience.py", "config/database/base.py"}


def check(title, modules, most):
    modules = [module for module in modules if module not in BESIDE_EVERY_WAY]
    listed = "\n  ".join([f"{title} runs through {len(modules)} modules:", *modules])
    sys.stdout.write(f"{listed}\n")
    assert len(modules) <= most, listed
    assert [module for module in modules if f"`{module}`" not in section(title)] == []


def section(title):
    page = Path(settings.BASE_DIR, "docs", "architecture.md").read_text()
    (found,) = [part for part in page.split("\n## ") if part.startswith(f"{title}\n")]
    return found
