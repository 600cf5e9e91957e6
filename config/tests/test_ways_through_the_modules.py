"""How many modules a reader opens who follows a request: few enough to hold in the head (docs/architecture.md)."""

import sys
from pathlib import Path

import pytest
from django.conf import settings

from agent_tools.tests import callers
from core.testing.module_counter import counted_modules
from intake.tests.factories import a_person, a_turn
from memory import indexing

pytestmark = pytest.mark.django_db

MOST_FOR_A_SEARCH = 18


def test_a_hybrid_search_over_rest_runs_through_few_modules():
    alice = a_person("alice")
    a_turn(alice, "I adopted a cat named Miso")
    a_turn(alice, "What do dogs eat?")
    indexing.embed_pending()
    a_turn(alice, "The cat sleeps on the sofa")
    client = callers.client_of(alice)
    body = {"query": "my cat", "mode": "hybrid"}
    for _ in range(3):
        callers.call(client, "search_chat_history", body)
    with counted_modules() as counter:
        answer = callers.call(client, "search_chat_history", body)
    assert answer.json()["totalFound"] == 3
    modules = counter.modules
    listed = "\n  ".join([f"A hybrid search over REST runs through {len(modules)} modules:", *modules])
    sys.stdout.write(f"{listed}\n")
    assert len(modules) <= MOST_FOR_A_SEARCH, listed
    assert [module for module in modules if f"`{module}`" not in section("The way of a search")] == []


def section(title):
    page = Path(settings.BASE_DIR, "docs", "architecture.md").read_text()
    (found,) = [part for part in page.split("\n## ") if part.startswith(f"{title}\n")]
    return found
