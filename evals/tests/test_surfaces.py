"""Lives: everything is loaded by the services, and each surface is asked what it is about, at the question's own time."""

import json
from contextlib import nullcontext
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from evals.datasets.reading import DocumentRow, Gold, Life, LifeQuery, TurnRow, read_life
from evals.management.commands import run_evals
from evals.surfaces import SURFACES, AskedOf, Reply, Result, as_data, cover, table
from evals.tests.conftest import turn

NOW = "2026-03-01T12:00:00+00:00"


@pytest.fixture
def in_place(monkeypatch):
    monkeypatch.setattr(run_evals, "scratch_database", nullcontext)


@pytest.fixture
def write_life(write_dataset):
    def write(turns, queries, documents=(), records=()):
        folder = write_dataset(turns, queries)
        for name, rows in (("documents.jsonl", documents), ("records.jsonl", records)):
            (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return folder

    return write


@pytest.fixture
def a_life(write_life):
    return write_life(
        [
            turn("ines", "roof", 1, "The roof leaks above the stairs", at="2026-02-28T09:00:00+00:00"),
            turn("ines", "roof", 2, "The roof was mended by Duarte", at="2026-01-05T09:00:00+00:00"),
        ],
        [
            question("time", "What did I say about the roof yesterday?", {"turn": "roof#1"}, best=[{"turn": "roof#1"}]),
            question("latest", "Who mended the roof?", {"turn": "roof#2"}, stale=[{"turn": "roof#9"}]),
            question("notes", "Which tiles fit?", {"document": "m", "contains": "Vauban tiles"}),
            question("mixed_sources", "the gutter", {"record": "r"}),
            question("unanswerable", "zyxw vutsrq"),
        ],
        documents=[
            {"user": "ines", "id": "m", "kind": "memory", "text": "- The tiles that fit are Vauban  tiles."},
            {"user": "ines", "id": "u", "kind": "user", "text": "No document of this kind is kept."},
            {"user": "ines", "id": "d", "kind": "daily", "date": "2026-02-03", "text": "- Bought paint."},
        ],
        records=[
            {"user": "ines", "id": "r", "type": "note", "content": "The gutter is zinc", "created_at": NOW},
        ],
    )


def question(category, text, *gold, **more):
    common = {"user": "ines", "id": text, "now": NOW, "timezone": "UTC", "sources": ["turns", "documents", "records"]}
    return {**common, "category": category, "text": text, "gold": list(gold), **more}


@pytest.mark.medium
@pytest.mark.django_db(transaction=True)
def test_every_surface_is_asked_what_it_is_about_and_the_figures_have_the_contracts_names(
    copied_scratch, a_life, tmp_path, capsys
):
    target = tmp_path / "figures.json"
    call_command("run_evals", dataset=a_life, surface="all", distractors=3, json=target)
    out, err = capsys.readouterr()
    data = json.loads(target.read_text())
    assert (data["turns"], data["distractors"], data["queries"]) == (2, 3, 5)
    assert list(data["surfaces"]) == [
        "search_chat_history_semantic",
        "search_chat_history_hybrid",
        "search_history",
        "search_memory",
        "get_context",
        "recall",
    ]
    for surface in data["surfaces"].values():
        for means in [surface["overall"], *surface["categories"].values()]:
            assert list(means) == ["recall@1", "recall@5", "recall@10", "mrr", "n"]
    history = data["surfaces"]["search_history"]
    assert set(history["categories"]) == {"time", "latest", "notes", "mixed_sources"}
    assert [means["recall@5"] for means in history["categories"].values()] == [1, 1, 1, 1]
    assert (history["in_window@5"], history["best@10"], history["newest_first"]) == (1, 1, 1)
    # Yesterday is the question's, not the machine's.
    assert data["surfaces"]["search_chat_history_hybrid"]["categories"]["time"]["recall@1"] == 1
    assert set(data["surfaces"]["search_memory"]["categories"]) == {"mixed_sources"}
    assert data["surfaces"]["recall"]["categories"]["latest"]["recall@5"] == 1
    assert data["surfaces"]["recall"]["categories"]["notes"]["recall@5"] == 1
    assert data["surfaces"]["recall"]["coverage"]["1500"]["listed"] == 1
    assert "in window@5" in out
    assert "Saved 5 turns of 1 people." in err


@pytest.mark.django_db(transaction=True)
def test_a_data_set_of_turns_alone_is_asked_by_surface_too(copied_scratch, write_dataset, tmp_path):
    gold = {"user": "ines", "id": "1", "category": "parts", "text": "gateway", "gold": [["roof", 2]]}
    turns = [turn("ines", "roof", 1, "The roof leaks"), turn("ines", "roof", 2, "The RoofGateway leaks")]
    target = tmp_path / "figures.json"
    call_command("run_evals", dataset=write_dataset(turns, [gold]), surface="search_history", json=target)
    history = json.loads(target.read_text())["surfaces"]["search_history"]
    assert history["categories"]["parts"]["recall@1"] == 1


def answered(results, *, gold=(), category="latest", **more):
    query = LifeQuery.model_validate(question(category, "?", *gold, **more))
    return AskedOf(query, Reply([Result(name, text) for name, text in results], is_nothing=not results))


def test_any_alternative_is_right_and_of_a_document_only_the_part_that_holds_the_fact():
    gold = [{"turn": "c#1"}, {"document": "d", "contains": "Vauban  Tiles"}]
    parts = [(("document", "d"), "other tiles"), (None, "Vauban tiles"), (("document", "d"), "are vauban tiles.")]
    assert answered(parts, gold=gold).scores == {"recall@1": 0, "recall@5": 1, "recall@10": 1, "mrr": 1 / 3}
    assert answered([(("turn", "c#1"), "")], gold=gold).scores["mrr"] == 1
    assert answered([], gold=gold).scores["mrr"] == 0


def test_the_newest_is_first_if_every_earlier_statement_stands_below_it_or_nowhere():
    new, old = ("turn", "c#2"), ("turn", "c#1")
    more = {"gold": [{"turn": "c#2"}], "stale": [{"turn": "c#1"}]}
    found = [new, old], [new], [old, new], [old]
    first = [answered([(each, "") for each in results], **more).is_newest_first for results in found]
    assert first == [True, True, False, False]


def test_a_text_covers_a_question_if_it_has_every_needed_fact_within_the_budget():
    first, second = UUID("01890a5d-ac96-774b-bcce-b3021111abcd"), UUID("01890a5d-ac96-774b-bcce-b3022111abcd")
    names = {(first, 1): ("turn", "c#1"), (second, 2): ("turn", "d#2")}
    said = ["The roof leaks above the old stairs", "A man came to mend it on Monday"]
    turns = [
        TurnRow.model_validate(turn("ines", name, number, text))
        for name, number, text in zip("cd", (1, 2), said, strict=True)
    ]
    life = Life("x", turns, [], [], [])
    asked = question("latest", "?", {"turn": "c#1"}, {"turn": "d#2"})
    one, both = (LifeQuery.model_validate({**asked, "needs_all": needs_all}) for needs_all in (False, True))
    text = f"{said[0]} today\nid: 1111abcd/1\nid: 2111abcd/2"
    covered = {query.needed: cover(query, text, 1500, life, names) for query in (one, both)}
    assert {name: (each.listed, each.shown) for name, each in covered.items()} == {"1": (1, 1), "2": (1, 0)}
    assert not cover(one, text, 5, life, names).listed
    assert cover(one, f"(/chats/{first}/?turn=1)", 1500, life, names).listed
    data = as_data([AskedOf(query, Reply([], False), {1500: covered[query.needed]}) for query in (one, both)])
    assert data["coverage"]["1500"] == {
        "listed": 1,
        "shown": 0.5,
        "tokens": covered["1"].tokens,
        "by_turns": {"1": {"listed": 1, "shown": 1, "n": 1}, "2": {"listed": 1, "shown": 0, "n": 1}},
    }


def test_a_note_is_listed_by_its_place_and_day_as_recall_mode_names_it():
    log = DocumentRow(user="ines", id="d", kind="daily", date="2026-02-03", text="x")
    asked = LifeQuery.model_validate(question("notes", "?", {"document": "d"}))
    texts = (f"- **{day} February 2026**, in your daily log:" for day in (3, 13))
    assert [cover(asked, text, 1500, Life("x", [], [log], [], []), {}).listed for text in texts] == [True, False]


def test_false_answers_and_refusals_are_shares_of_different_questions():
    some, none, gold = [(("turn", "c#1"), "")], [], [{"turn": "c#1"}]
    asked = [answered(found, category="unanswerable") for found in (some, none)]
    asked += [answered(found, category="exact", gold=gold) for found in (some, none)]
    data = as_data(asked)
    assert (data["false_answers"], data["refused"], data["overall"]["n"]) == (0.5, 0.5, 2)
    assert list(data["categories"]) == ["exact"]


def test_the_figures_of_notes_stand_apart_from_those_of_turns():
    right = [(("turn", "c#1"), ""), (("record", "r"), "")]
    golds = {"turn": "c#1"}, {"record": "r"}, {"document": "d", "contains": "x"}
    asked = [answered(right, gold=[gold]) for gold in golds]
    sources = as_data(asked)["sources"]
    assert {name: (means["n"], means["recall@1"], means["recall@5"]) for name, means in sources.items()} == {
        "turns": (1, 1, 1),
        "notes": (2, 0, 0.5),
    }
    assert [row.split()[:3] for row in table("x", asked).splitlines() if row.startswith("in ")] == [
        ["in", "turns", "1"],
        ["in", "notes", "2"],
    ]


def test_a_row_of_somebody_without_turns_is_said_with_its_line(write_life):
    folder = write_life(
        [turn("ines", "c", 1, "x")],
        [question("exact", "x", {"turn": "c#1"})],
        documents=[
            {"user": "bob", "id": "m", "kind": "memory", "text": "x"},
        ],
    )
    with pytest.raises(CommandError, match=r"documents.jsonl, line 1: the user 'bob' has no turns"):
        read_life(folder)


def test_a_lifes_questions_without_its_documents_are_refused_where_they_stand(write_dataset):
    folder = write_dataset([turn("ines", "c", 1, "x")], [question("exact", "x", {"turn": "c#1"})])
    with pytest.raises(CommandError, match=r"queries.jsonl, line 1: gold"):
        call_command("run_evals", dataset=folder, surface="search_history")


def test_gold_names_one_thing():
    assert Gold(record="r", contains="x").key == ("record", "r")
    assert [surface.name for surface in SURFACES if surface.is_about(LifeQuery.model_validate(question("x", "y")))] == [
        "search_chat_history_semantic",
        "search_chat_history_hybrid",
        "search_history",
        "get_context",
        "recall",
    ]
