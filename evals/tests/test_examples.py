"""The demo with the built-in model: every example of a search in README and docs, and questions in other words."""

import json
import re
import shlex
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client, override_settings
from django.utils import timezone

from agent_tools.authentication import create_token
from core.isolation.acting import acting_as
from evals import demo
from evals.datasets.loading import embed_all
from evals.tests.conftest import built_in_model
from intake.tests.factories import NOW
from memory import records
from memory.search import search_chat_history
from memory.search.history import HistoryRequest, search_history
from testing.kept_rows import kept_rows

pytestmark = [pytest.mark.extended, pytest.mark.django_db, pytest.mark.usefixtures("real_embedder")]

# What an example finds among its first three results.
FINDS = {
    "where did I want to go in spring?": "Lisbon in May",
    "the restaurant for the anniversary": "Which restaurant would you take",
    "anniversary": "Our anniversary is on Saturday",
    "which worktop did we choose": "oak worktop",
    "kitchen": "kitchen",
    "why did the buzzing stop": "drip tray",
}
CALL = re.compile(r"/api/v1/tools/(search_\w+)/.*?-d '(\{.*?\})'", re.DOTALL)
COMMAND = re.compile(r"^\s*(?:recollect|python3 -m recollect_cli) search (.*?)(?:\s+#.*)?$", re.MULTILINE)


def examples():
    """Each with where it stands, its tool and its input."""
    root = Path(settings.BASE_DIR)
    for path in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = path.read_text()
        for tool, body in CALL.findall(text):
            yield path.name, tool, json.loads(body)
        for line in COMMAND.findall(text):
            query, *options = shlex.split(line)
            yield path.name, "search_history", {"query": query, **scope_of(options)}


def scope_of(options):
    return {"scope": options[options.index("--scope") + 1]} if "--scope" in options else {}


# Asked in other words than were used: what is found is found by its meaning.
QUESTIONS = {
    "How much did my new bicycle cost?": "I bought the grey one",
    "What should we do about processes that crash in the middle of their work?": "What happens if a worker is killed",
    "Which alert tells me that background tasks are piling up?": "And how do I notice that it falls behind",
    "the recipe for the nut dip my guests liked": "It went really well. The peanut sauce",
    "My joint aches when I walk down the stairs": "Since the 12 km on Sunday it hurts",
    "vegetables for a terrace without much light": "My balcony faces north-east",
    "our program runs out of RAM when reading huge spreadsheets": "Our import script is killed at 8 GB",
    "getting the money back from the landlord": "We are leaving our flat",
    "vegetarian meals in Japan": "My partner doesn't eat fish",
    "What did the aeroplane tickets cost?": "Flights are booked",
    "how to negotiate with my boss about pay": "I have my yearly review",
    "a keyboard instrument that does not disturb the neighbours": "We live on the third floor with thin walls",
    "continuous integration is too slow": "Our pipeline takes 23 minutes",
    "my pet refuses food": "She hasn't eaten anything",
}


@kept_rows
def demo_by_meaning():
    """The person of the demo, whose chats and notes have vectors of the built-in model."""
    with override_settings(EMBEDDER=built_in_model()), pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: NOW)
        user, _ = demo.ensure_person()
        with acting_as(user):
            demo.load_demo(user, now=NOW)
            assert demo.load_notes(user, now=NOW) == 12
            assert demo.load_notes(user, now=NOW) == 0, "a second run changes nothing"
        embed_all(report=lambda line: None)
    return user


def test_every_example_of_a_search_finds_on_the_demo_what_it_is_about(demo_by_meaning, monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    client = Client(headers={"authorization": f"Bearer {create_token(user=demo_by_meaning).secret}"})
    missed = {}
    for place, tool, asked in examples():
        answer = client.post(f"/api/v1/tools/{tool}/", asked, content_type="application/json").json()
        texts = [json.dumps(result, ensure_ascii=False) for result in answer["results"][:3]]
        if not any(FINDS[asked["query"]] in text for text in texts):
            missed[place, tool, asked["query"]] = answer
    assert not missed
    assert {asked["query"] for _, _, asked in examples()} == set(FINDS)


def test_a_decision_is_before_the_list_that_ticks_it_off_and_the_one_just_saved_is_first(demo_by_meaning):
    def found():
        request = HistoryRequest(query="which worktop did we choose")
        results = search_history(request, user=demo_by_meaning, now=NOW).results
        return [
            each.excerpt.text for each in results if "worktop" in each.excerpt.text and each.reference.kind == "memory"
        ]

    (decision, ticked) = found()
    assert "sawmill in Baarn" in decision and "worktop chosen" in ticked
    saved = "We take the oak worktop, 40 mm thick."
    with acting_as(demo_by_meaning):
        records.create(user=demo_by_meaning, content=saved, type="decision", now=NOW)
    assert found() == [saved, decision, ticked]
    embed_all(report=lambda line: None)
    assert found() == [saved, decision, ticked]


def test_questions_in_other_words_find_the_right_turn_among_the_first_three(demo_by_meaning):
    missed = {}
    for question, requested in QUESTIONS.items():
        found = [match.snippet for match in search_chat_history(user=demo_by_meaning, query=question, limit=3).matches]
        if not any(snippet.startswith(requested) for snippet in found):
            missed[question] = found

    assert not missed
