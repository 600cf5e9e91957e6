"""Fits the hybrid ranking's weights to data sets: `manage.py fit_ranking`.

1. Every query is put to both retrievers as its person, and each candidate's features are kept.
2. The weights are those under which the wanted texts are likeliest among their query's candidates: listwise logistic
   regression (Cao et al., Learning to Rank: From Pairwise Approach to Listwise Approach, 2007), each data set counting
   the same.
3. A logistic of the score then says how likely a single candidate is the wanted one (J. Platt, 1999).

Both are convex, so Newton's method finds the one best answer in a few steps.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.isolation.acting import acting_as
from evals.datasets.loading import Loaded
from evals.datasets.reading import Dataset
from evals.retrieval import NOT_IN_HEADLINE
from memory.backends.embedders import RankingWeights
from memory.models import Corpus
from memory.models.documents import Scope
from memory.search.fusion import features_of
from memory.search.hybrid import embedded, gather, matcher_of
from memory.search.time_windows import preferred_times

Numbers = npt.NDArray[np.float64]

STEPS = 50
# Keeps weights that the data say little about near 0.
SHRINKAGE = 0.006
TINY = 1e-5
RECALL_AT = (1, 5, 10)


@dataclass(frozen=True, slots=True)
class RankedQuery:
    """`features`: a row for each candidate. `requested`: which are. `gold`: how many texts are wanted in all."""

    dataset: str
    features: Numbers
    requested: npt.NDArray[np.bool_]
    gold: int


def questions(dataset: Dataset, loaded: Loaded) -> list[RankedQuery]:
    """The headline queries of a loaded and embedded data set."""
    asked = []
    for query in dataset.queries:
        if query.category in NOT_IN_HEADLINE:
            continue
        user = loaded.users[query.user]
        with acting_as(user):
            found = gather(Scope(user, (Corpus.CHAT,)), query=query.text, meaning=embedded(query.text))
        features = features_of(
            found.hits,
            ideal=found.ideal,
            unrelated=found.unrelated,
            convincing=found.calibration.convincing,
            times=matcher_of(preferred_times(query.text), user),
        )
        requested = [loaded.origins[hit.key] in query.gold for hit in found.hits]
        asked.append(RankedQuery(dataset.name, np.array(features), np.array(requested, bool), len(query.gold)))
    return asked


def fit(asked: Iterable[RankedQuery]) -> RankingWeights:
    """The weights under which the wanted are likeliest; queries whose wanted text no retriever found say nothing."""
    telling = [one for one in asked if one.requested.any()]
    shares = _shares(telling)
    best = _minimise(
        np.zeros(len(RankingWeights._fields)),
        loss=lambda weights: _loss(weights, telling, shares),
        step=lambda weights: _newton_step(weights, telling, shares),
    )
    return RankingWeights(*map(float, best))


def _minimise(start: Numbers, *, loss: Callable[[Numbers], float], step: Callable[[Numbers], Numbers]) -> Numbers:
    """Newton's method; far from the best a whole step may lead past it, and is halved until it does not."""
    best, lowest = start, loss(start)
    for _ in range(STEPS):
        move = step(best)
        while (tried := loss(best - move)) > lowest and np.abs(move).max() > TINY:
            move = move / 2
        if np.abs(move).max() <= TINY:
            break
        best, lowest = best - move, tried
    return best


def _loss(weights: Numbers, asked: Sequence[RankedQuery], shares: Numbers) -> float:
    """The loss to minimise: the negative log-likelihood of the wanted texts, and a small L2 penalty."""
    unlikely = [-np.log(_softmax(one.features @ weights)[one.requested] + 1e-12).mean() for one in asked]
    return float(shares @ np.array(unlikely) + SHRINKAGE / 2 * weights @ weights)


def _newton_step(weights: Numbers, asked: Sequence[RankedQuery], shares: Numbers) -> Numbers:
    gradient, curvature = SHRINKAGE * weights, SHRINKAGE * np.eye(len(weights))
    for one, share in zip(asked, shares, strict=True):
        likely = _softmax(one.features @ weights)
        mean = likely @ one.features
        gradient += share * (mean - one.features[one.requested].mean(axis=0))
        curvature += share * ((one.features * likely[:, None]).T @ one.features - np.outer(mean, mean))
    return np.asarray(np.linalg.solve(curvature, gradient), np.float64)


def calibrate(asked: Iterable[RankedQuery], weights: RankingWeights) -> tuple[float, float]:
    """`slope` and `intercept` of the logistic that makes a probability of a score."""
    asked = list(asked)
    rows = [np.column_stack([one.features @ np.array(weights), np.ones(len(one.requested))]) for one in asked]
    features, requested = np.concatenate(rows), np.concatenate([one.requested for one in asked])
    share = np.repeat(_shares(asked), [len(one.requested) for one in asked])
    signs = np.where(requested, -1, 1)
    # A few questions may be told apart without any doubt; the shrinkage keeps their line from becoming ever steeper.
    slope, intercept = _minimise(
        np.zeros(2),
        loss=lambda line: float(share @ np.logaddexp(0, signs * (features @ line)) + TINY / 2 * line @ line),
        step=lambda line: _platt_step(line, features, requested, share),
    )
    return float(slope), float(intercept)


def _platt_step(line: Numbers, features: Numbers, requested: npt.NDArray[np.bool_], share: Numbers) -> Numbers:
    likely = 1 / (1 + np.exp(-np.clip(features @ line, -50, 50)))
    gradient = TINY * line + features.T @ (share * (likely - requested))
    curvature = TINY * np.eye(2) + (features * (share * likely * (1 - likely))[:, None]).T @ features
    return np.asarray(np.linalg.solve(curvature, gradient), np.float64)


def recall(asked: Sequence[RankedQuery], weights: RankingWeights) -> dict[int, float]:
    """The share of the wanted texts among the first k, averaged over queries, by k."""
    found: dict[int, list[float]] = {k: [] for k in RECALL_AT}
    for one in asked:
        order = np.argsort(-(one.features @ np.array(weights)), kind="stable")
        for k in RECALL_AT:
            found[k].append(one.requested[order[:k]].sum() / one.gold)
    return {k: float(np.mean(values)) for k, values in found.items()}


def _shares(asked: Sequence[RankedQuery]) -> Numbers:
    """The weight of each question, so that every data set counts the same; 1 in all."""
    names = [one.dataset for one in asked]
    return np.array([1 / names.count(name) for name in names]) / len(set(names))


def _softmax(scores: Numbers) -> Numbers:
    likely: Numbers = np.exp(scores - scores.max())
    likely /= likely.sum()
    return likely
