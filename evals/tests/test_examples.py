"""Every example of a search in README and docs, asked of the demo with the built-in model: each finds what it is about."""

import json
import re
import shlex
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from agent_tools.authentication import create_token
from core.isolation.acting import acting_as
from evals import demo
from evals.datasets.loading import embed_all
from intake.tests.factories import NOW

pytestmark = pytest.mark.django_db

# What an example finds among its first three results.
FINDS = {
    "where did I want to go in spring?": "Lisbon in May",
    "the restaurant for the anniversary": "Which restaurant would you take",
    "anniversary": "Our anniversary is on Saturday",
    "restaurant": "Georgian restaurant",
    "which worktop did we choose": "oak worktop",
    "which database did we choose?": "PostgreSQL",
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


@pytest.mark.slow
def test_every_example_of_a_search_finds_on_the_demo_what_it_is_about(real_embedder, monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    user, _ = demo.ensure_person()
    with acting_as(user):
        demo.load_demo(user, now=NOW)
        assert demo.load_notes(user, now=NOW) == 12
        assert demo.load_notes(user, now=NOW) == 0, "a second run changes nothing"
    embed_all(report=lambda line: None)
    client = Client(headers={"authorization": f"Bearer {create_token(user=user).secret}"})
    missed = {}
    for place, tool, asked in examples():
        answer = client.post(f"/api/v1/tools/{tool}/", asked, content_type="application/json").json()
        texts = [json.dumps(result, ensure_ascii=False) for result in answer["results"][:3]]
        if not any(FINDS[asked["query"]] in text for text in texts):
            missed[place, tool, asked["query"]] = answer
    assert not missed
    assert {asked["query"] for _, _, asked in examples()} == set(FINDS)
