import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from evals import metrics, vec02
from evals.datasets.reading import Dataset, QueryRow, TurnRow
from evals.management.commands import run_evals
from evals.retrieval import Answered, newest_first, rank_fusion, table
from evals.tests.conftest import query, turn
from intake.models import User
from memory.search import SearchMode

pytestmark = pytest.mark.django_db
REAL_DATA = os.environ.get("RECOLLECT_EVAL_DATA")


@pytest.fixture
def in_place(monkeypatch):
    """Stays in the tests' own database, which is empty too, where a scratch one would only take time."""
    monkeypatch.setattr(run_evals, "scratch_database", nullcontext)


def run(folder, capsys, **options):
    call_command("run_evals", dataset=folder, **options)
    return capsys.readouterr()


def test_figures_are_printed_and_written_in_the_contracts_shape_and_nothing_else_is_left(
    copied_scratch, a_dataset, tmp_path, capsys
):
    target = tmp_path / "figures.json"

    out, err = run(a_dataset, capsys, json=target)

    figures = json.loads(target.read_text())
    assert set(figures) == {"dataset", "turns", "queries", "modes", "rank_fusion"}
    assert (figures["dataset"], figures["turns"], figures["queries"]) == (a_dataset.name, 3, 2)
    assert set(figures["modes"]) == set(SearchMode)
    for mode in [*figures["modes"].values(), figures["rank_fusion"]]:
        assert set(mode) == {"overall", "headline", "categories"}
        assert set(mode["categories"]) == {"single-hop"}
        for scores in (mode["overall"], mode["headline"], mode["categories"]["single-hop"]):
            assert list(scores) == list(metrics.NAMES)
    assert figures["modes"]["semantic"]["overall"]["recall@5"] == 1
    assert "nDCG@10" in out
    assert "single-hop" in out
    assert "3 of 3 parts embedded." in err
    assert not User.objects.exists(), "somebody of the data set was left in the configured database"


def test_rank_fusion_adds_the_reciprocals_of_the_ranks():
    asked = QueryRow(user="ann", id="q", category="order", text="?", gold=[("c", 3)])
    words, meaning = [[("c", number) for number in numbers] for numbers in ([1, 3, 4], [2, 3, 1])]

    (fused,) = rank_fusion([Answered.of(asked, words)], [Answered.of(asked, meaning)])

    # 1/61 + 1/63, 1/62 + 1/62, 1/61, 1/63
    assert [number for _, number in fused.ranking] == [1, 3, 2, 4]
    assert fused.scores["mrr"] == 0.5


def test_the_share_of_restated_values_whose_newest_turn_is_first_is_counted():
    rows = [TurnRow(**turn("ann", "c", number, "?")) for number in (1, 2, 3)]
    older_first, newer_first, neither = [("c", 1), ("c", 3)], [("c", 2), ("c", 3), ("c", 1)], [("c", 2)]
    asked = {
        category: QueryRow(user="ann", id="q", category=category, text="?", gold=[("c", 3), ("c", 1)])
        for category in ("knowledge_update", "temporal_reasoning")
    }
    alone = asked["knowledge_update"].model_copy(update={"gold": [("c", 3)]})
    answered = [
        Answered.of(asked["knowledge_update"], older_first),
        Answered.of(asked["knowledge_update"], newer_first),
        Answered.of(asked["knowledge_update"], older_first),
        Answered.of(asked["knowledge_update"], neither),
        Answered.of(asked["temporal_reasoning"], newer_first),
        Answered.of(alone, newer_first),
    ]

    counted = newest_first(Dataset(name="set", turns=rows, queries=[]), answered)

    assert counted == {"newest_first": {"knowledge_update": 0.25}}
    assert "newest first, knowledge_update: 25.0" in table("hybrid", answered, counted["newest_first"])


def test_one_mode_alone_is_fused_with_nothing(in_place, a_dataset, tmp_path, capsys):
    target = tmp_path / "figures.json"
    out, _ = run(a_dataset, capsys, json=target, mode="semantic")
    assert "rank_fusion" not in json.loads(target.read_text())
    assert "rank fusion" not in out


def test_categories_that_ask_for_no_similar_text_are_left_out_of_the_headline(
    in_place, write_dataset, tmp_path, capsys
):
    turns = [turn("alice", "talk", number, f"Subject {number}") for number in range(1, 30)]
    # What the summary asks for is found by nobody among 25 of 29 turns that say nothing of it.
    found = query("alice", "Subject 3", ["talk", 3])
    missed = query("alice", "unrelated", *(["talk", number] for number in range(1, 30)), category="summarization")
    target = tmp_path / "figures.json"

    run(write_dataset(turns, [found, missed]), capsys, json=target)

    mode = json.loads(target.read_text())["modes"]["semantic"]
    assert mode["headline"] == mode["categories"]["single-hop"]
    assert mode["overall"]["recall@10"] < mode["headline"]["recall@10"] == 1


def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(a_dataset):
    with pytest.raises(CommandError, match=r"invalid choice: 'telepathic' \(choose from .*semantic.*all"):
        call_command("run_evals", f"--dataset={a_dataset}", "--mode=telepathic")


def test_one_mode_can_be_asked_for_alone(in_place, a_dataset, tmp_path, capsys):
    run(a_dataset, capsys, mode="semantic", json=tmp_path / "figures.json")

    assert set(json.loads((tmp_path / "figures.json").read_text())["modes"]) == {"semantic"}


def test_a_broken_data_set_is_an_error_of_one_sentence_and_no_traceback(tmp_path, capsys):
    with pytest.raises(CommandError, match=r"turns\.jsonl cannot be read"):
        run(tmp_path, capsys)


def test_failed_evals_fail_the_command(in_place, monkeypatch, capsys):
    verdict = vec02.Verdict("V2-02", "blocked", failure="leaked")
    monkeypatch.setitem(run_evals.SUITES, "vec-02", (lambda: [verdict], 1.0))

    with pytest.raises(CommandError, match="1 of 1 evals failed"):
        call_command("run_evals", suite="vec-02")

    assert "V2-02 FAIL  leaked" in capsys.readouterr().out


@pytest.mark.skipif(not REAL_DATA, reason="RECOLLECT_EVAL_DATA names no folder with locomo-dev in it")
def test_a_persons_share_of_a_public_data_set_is_found(in_place, real_embedder, tmp_path, write_dataset, capsys):
    """One conversation of the public set, for the time's sake; the whole of it is for the command."""
    folder = Path(REAL_DATA) / "locomo-dev"
    person = '"user": "conv-30"'
    rows = {
        name: [line for line in (folder / name).read_text().splitlines() if person in line]
        for name in ("turns.jsonl", "queries.jsonl")
    }
    target = tmp_path / "figures.json"

    run(write_dataset(rows["turns.jsonl"], rows["queries.jsonl"]), capsys, mode="semantic", json=target)

    assert json.loads(target.read_text())["modes"]["semantic"]["overall"]["recall@10"] > 0.55
