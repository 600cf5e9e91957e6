"""`search_memory` over REST: the contract's words, and a structured answer to every wrong input."""

import json
import logging

import pytest
from django.db import DataError, OperationalError
from django.test import Client

from agent_tools.tests import callers
from agent_tools.tools import registry
from agent_tools.tools.memory import search_memory
from intake.tests.factories import NOW, a_person
from memory import index, records
from memory.backends.embedders import EmbedderError, get_embedder
from memory.search.records import MemorySearchResult

pytestmark = pytest.mark.django_db


def call(client, body):
    return callers.call(client, "search_memory", body)


def note(user, content, **fields):
    return records.create(user=user, content=content, now=NOW, **fields)


def test_the_tool_is_registered():
    assert registry.get("search_memory") is search_memory
    assert search_memory.is_read_only


def test_a_found_record_has_the_contracts_shape(api, alice):
    made = note(alice, "We chose\n\nPostgreSQL", type="ARCHITECTURAL_DECISION", project_id="recollect", tags=["db"])
    index.embed_pending()
    answer = call(api, {"query": "we chose postgresql"}).json()
    assert answer.keys() == {"results", "text"}
    (result,) = answer["results"]
    assert result.keys() == {"record", "similarity"}
    assert result["record"] == {
        "id": str(made.id),
        "type": "ARCHITECTURAL_DECISION",
        "project_id": "recollect",
        "tags": ["db"],
        "content": "We chose\n\nPostgreSQL",
        "created_at": "2026-03-01T12:00:00Z",
    }
    assert 0.99 < result["similarity"] <= 1
    assert answer["text"] == (
        "1. **ARCHITECTURAL_DECISION** (similarity 1.00; 2026-03-01; project recollect; tags: db): We chose PostgreSQL"
    )


def test_a_record_of_no_project_says_so_by_an_empty_name(api, alice):
    note(alice, "A cat")
    index.embed_pending()
    (result,) = call(api, {"query": "a cat"}).json()["results"]
    assert (result["record"]["project_id"], result["record"]["tags"]) == ("", [])


def test_the_text_is_a_markdown_list_that_cuts_long_records_short(api, alice):
    note(alice, "cat " * 1000)
    note(alice, "cat")
    index.embed_pending()
    answer = call(api, {"query": "cat"}).json()
    lines = answer["text"].split("\n")
    assert [line[:3] for line in lines] == ["1. ", "2. "]
    assert max(len(line) for line in lines) < 600
    assert {len(result["record"]["content"]) for result in answer["results"]} == {3, 4000}


@pytest.fixture
def finds(monkeypatch):
    """Lets the search find these records with these similarities."""

    def finds(records, similarities):
        found = [MemorySearchResult(*each) for each in zip(records, similarities, strict=True)]
        monkeypatch.setattr("agent_tools.tools.memory.search", lambda query, *, user: found)

    return finds


def test_one_line_sets_apart_what_is_below_the_floor_of_relevance(api, alice, finds):
    made = [note(alice, f"cat {number}") for number in range(3)]
    finds(made, [0.4, 0.249, 0.1])
    answer = call(api, {"query": "cat"}).json()
    assert answer["text"].split("\n") == [
        "1. **note** (similarity 0.40; 2026-03-01): cat 0",
        "",
        "2 more memories are probably about something else (similarity under 0.25):",
        "",
        "2. **note** (similarity 0.25; 2026-03-01): cat 1",
        "3. **note** (similarity 0.10; 2026-03-01): cat 2",
    ]
    assert len(answer["results"]) == 3
    shown = search_memory.text_of(search_memory.call({"query": "cat"}, user=alice)).split("\n")
    assert [line for line in shown if line.startswith("id: ")] == [f"id: {each.id.hex[-8:]}" for each in made]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([0.3, 0.1], "1 more memory is probably about something else (similarity under 0.25):"),
        ([0.1], "1 memory is probably about something else (similarity under 0.25):"),
        ([0.2, 0.1], "2 memories are probably about something else (similarity under 0.25):"),
        ([0.9, 0.25], None),
    ],
)
def test_the_line_counts_in_the_singular_and_in_the_plural(api, alice, finds, values, line):
    finds([note(alice, f"cat {number}") for number in range(len(values))], values)
    lines = call(api, {"query": "cat"}).json()["text"].split("\n")
    assert [each for each in lines if each and "**" not in each] == ([line] if line else [])


def test_a_model_without_tuned_numbers_has_no_floor(api, alice, finds, monkeypatch):
    monkeypatch.setattr(get_embedder(), "calibration", None)
    finds([note(alice, "cat")], [0.01])
    assert call(api, {"query": "cat"}).json()["text"] == "1. **note** (similarity 0.01; 2026-03-01): cat"


def test_every_filter_is_handed_on(api, alice):
    note(alice, "cat one", type="RCA", project_id="p", tags=["x"])
    for fields in ({"type": "NOTE"}, {"project_id": "q"}, {"tags": ["y"]}):
        note(alice, "cat two", **{"type": "RCA", "project_id": "p", "tags": ["x"], **fields})
    note(alice, "something else entirely", type="RCA", project_id="p", tags=["x"])
    index.embed_pending()
    requested = {"query": "cat one", "types": ["RCA", "?"], "project_id": "p", "tags": ["x", "?"], "minSimilarity": 0.5}
    assert [r["record"]["content"] for r in call(api, requested).json()["results"]] == ["cat one"]
    assert len(call(api, {"query": "cat", "topK": 2}).json()["results"]) == 2
    assert len(call(api, {"query": "cat", "types": [], "tags": [], "project_id": ""}).json()["results"]) >= 4


def test_top_k_above_the_cap_is_taken_for_50(api, alice, caplog):
    for number in range(51):
        note(alice, f"cat {number}")
    index.embed_pending()
    with caplog.at_level(logging.WARNING):
        assert len(call(api, {"query": "cat", "topK": 10**30}).json()["results"]) == 50
    assert "the most there is" in caplog.text


def test_nothing_found_is_an_empty_answer_that_says_so(api):
    answer = call(api, {"query": "cat"})
    assert answer.status_code == 200
    assert answer.json() == {"results": [], "text": "No matching memories found.", "note": "no memory records found"}


def test_records_that_wait_are_told(api, alice):
    note(alice, "cat")
    assert call(api, {"query": "cat"}).json()["pending"] == 1
    index.embed_pending()
    assert "pending" not in call(api, {"query": "cat"}).json()


def test_somebody_elses_records_are_not_found(api):
    note(a_person("bob@example.com"), "cat")
    index.embed_pending()
    assert call(api, {"query": "cat"}).json()["results"] == []


def test_without_a_caller_there_is_nothing_and_no_error():
    output = search_memory.call({"query": "cat"}, user=None)
    assert (output.results, output.note) == ([], "user identity required")
    assert search_memory.summarise(output, None) == "Nothing to search yet: register or log in to have a memory"


def test_the_summary_tells_how_many_were_found(api, alice):
    for expected in ("Nothing found", "Found 1 memory", "Found 2 memories"):
        assert search_memory.summarise(search_memory.call({"query": "cat"}, user=alice), alice) == expected
        note(alice, "cat")
        index.embed_pending()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "query"),
        ({"query": ""}, "query"),
        ({"query": " \n"}, "query"),
        ({"query": "x" * 2001}, "query"),
        ({"query": True}, "query"),
        ({"query": None}, "query"),
        ({"query": "cat", "topK": 0}, "topK"),
        ({"query": "cat", "topK": -1}, "topK"),
        ({"query": "cat", "topK": "five"}, "topK"),
        ({"query": "cat", "topK": 1.5}, "topK"),
        ({"query": "cat", "topK": True}, "topK"),
        ({"query": "cat", "top": 5}, "top"),
        ({"query": "cat", "minSimilarity": -0.1}, "minSimilarity"),
        ({"query": "cat", "minSimilarity": 1.1}, "minSimilarity"),
        ({"query": "cat", "minSimilarity": "half"}, "minSimilarity"),
        ({"query": "cat", "types": True}, "types"),
        ({"query": "cat", "types": [["RCA"]]}, "types.0"),
        ({"query": "cat", "types": ["a\0b"]}, "types.0"),
        ({"query": "cat", "types": ["x" * 101]}, "types.0"),
        ({"query": "cat", "tags": {"a": 1}}, "tags"),
        ({"query": "cat", "tags": ["a\0b"]}, "tags.0"),
        ({"query": "cat", "tags": ["x"] * 51}, "tags"),
        ({"query": "cat", "project_id": [5]}, "project_id"),
        ({"query": "cat", "project_id": "a\0b"}, "project_id"),
        ({"query": "cat", "project_id": "x" * 201}, "project_id"),
        ({"query": "cat", "user": "bob"}, "user"),
    ],
)
def test_a_wrong_input_is_refused_naming_the_field(api, body, field):
    response = call(api, body)
    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert (problem["code"], problem["retryable"], list(problem["errors"])) == ("validation_error", False, [field])


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'"cat"', b"[" * 20_000, b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(api, body):
    response = call(api, body)
    assert (response.status_code, response.json()["code"]) == (400, "validation_error")


def test_without_credentials_it_is_refused():
    assert call(Client(), {"query": "cat"}).status_code == 401


@pytest.mark.parametrize("error", [EmbedderError("503"), EmbedderError("no file at /secret")])
def test_an_embedding_model_that_is_away_is_503_and_worth_a_retry(api, monkeypatch, error):
    def away(_):
        raise error

    monkeypatch.setattr(get_embedder(), "embed_query", away)
    response = call(api, {"query": "cat"})
    assert (response.status_code, response.json()["code"], response.json()["retryable"]) == (503, "unavailable", True)
    assert response.headers["Retry-After"]
    assert "secret" not in response.content.decode()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OperationalError("connection refused at /secret/socket"), 503, "unavailable"),
        (DataError("secret words are out of range"), 500, "search_error"),
        (RuntimeError("secret"), 500, "search_error"),
    ],
)
def test_a_failing_search_says_so_and_nothing_of_the_inside(api, monkeypatch, caplog, error, status, code):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("memory.index.vectors.nearest", fail)
    response = call(api, {"query": "cat"})
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert "secret" not in response.content.decode() + caplog.text


def test_the_schema_is_the_contracts():
    schema = search_memory.input_schema
    contract = {"query", "topK", "minSimilarity", "types", "project_id", "tags", "maxTokens"}
    assert set(schema["properties"]) == {*contract, "include_replaced"}
    assert schema["required"] == ["query"]
    assert schema["properties"]["topK"]["description"].endswith("Default: 10.")
    assert set(search_memory.output_schema["properties"]) == {"results", "text", "note", "pending"}


def test_the_documentation_has_the_schema_that_is_enforced(settings):
    page = (settings.BASE_DIR / "docs" / "search.md").read_text()
    assert "## Semantic Search (`search_memory`)" in page
    blocks = page.split("```json\n")[1:]
    schemas = [json.loads(block.split("```")[0]) for block in blocks]
    assert search_memory.input_schema in schemas
