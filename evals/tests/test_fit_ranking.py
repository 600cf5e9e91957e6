from contextlib import nullcontext

import numpy as np
import pytest
from django.core.management import CommandError, call_command

from evals import ranking_fit
from evals.management.commands import fit_ranking
from evals.ranking_fit import RankedQuery
from evals.tests.conftest import query, turn
from memory.backends.embedders import RankingWeights

SIZE = len(RankingWeights._fields)


@pytest.fixture
def in_place(monkeypatch):
    """Stays in the tests' own database, which is empty too, where a scratch one would only take time."""
    monkeypatch.setattr(fit_ranking, "scratch_database", nullcontext)


def made_up(count, weights, *, dataset="made up", seed=1):
    """Queries with twenty candidates each, of which one is wanted, as likely as its score says."""
    dice = np.random.default_rng(seed)
    asked = []
    for _ in range(count):
        features = dice.random((20, SIZE))
        scores = features @ np.array(weights)
        likely = np.exp(scores - scores.max())
        requested = np.zeros(20, bool)
        requested[dice.choice(20, p=likely / likely.sum())] = True
        asked.append(RankedQuery(dataset, features, requested, gold=1))
    return asked


@pytest.mark.medium
def test_the_weights_that_made_the_wanted_likely_are_found_again():
    weights = RankingWeights(6.0, *[0.0] * (SIZE - 2), 3.0)
    found = ranking_fit.fit(made_up(2000, weights))
    assert found[0] / found[-1] == pytest.approx(2.0, rel=0.15)
    assert found[-1] > 10 * max(map(abs, found[1:-1]))


def test_each_data_set_counts_the_same_however_many_questions_it_has():
    one, other = RankingWeights(8.0, *[0.0] * (SIZE - 1)), RankingWeights(*[0.0] * (SIZE - 1), 8.0)
    found = ranking_fit.fit([*made_up(1000, one, dataset="large"), *made_up(100, other, dataset="small")])
    assert found[0] == pytest.approx(found[-1], rel=0.3)


def test_a_calibrated_score_says_how_often_a_candidate_is_the_wanted_one():
    weights = RankingWeights(6.0, *[0.0] * (SIZE - 2), 3.0)
    asked = made_up(1000, weights)
    slope, intercept = ranking_fit.calibrate(asked, weights)
    scores = np.concatenate([one.features @ np.array(weights) for one in asked])
    assert (1 / (1 + np.exp(-(slope * scores + intercept)))).mean() == pytest.approx(1 / 20, rel=0.05)


def test_recall_is_the_share_of_the_wanted_among_the_first():
    features = np.zeros((3, SIZE))
    features[:, 0] = [0.9, 0.5, 0.1]
    asked = [RankedQuery("a", features, np.array([False, True, False]), gold=2)]
    assert ranking_fit.recall(asked, RankingWeights()) == {1: 0.0, 5: 0.5, 10: 0.5}


@pytest.mark.django_db
def test_weights_and_recall_are_printed_for_every_data_set(a_dataset, in_place, capsys):
    call_command("fit_ranking", a_dataset)
    out = capsys.readouterr().out
    assert all(f"{name}: float = " in out for name in (*RankingWeights._fields, "slope", "intercept"))
    assert f"{a_dataset.name}, in use" in out
    assert "100.0" in out


@pytest.mark.django_db
def test_a_data_set_in_which_nothing_wanted_is_found_is_refused_in_a_sentence(write_dataset, in_place, monkeypatch):
    folder = write_dataset([turn("ann", "c", 1, "Hello")], [query("ann", "Hello?", ["c", 1])])
    monkeypatch.setattr(ranking_fit, "questions", lambda *_: [])
    with pytest.raises(CommandError, match="nothing to fit to"):
        call_command("fit_ranking", folder)
