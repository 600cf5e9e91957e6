"""Fits the hybrid ranking's weights to data sets: `manage.py fit_ranking`.

1. Every query is put to both retrievers as its person, and each candidate's features are kept.
2. The weights are those under which the wanted texts are likeliest among their query's candidates: listwise logistic
   regression (Cao et al., Learning to Rank: From Pairwise Approach to Listwise Approach, 2007), each data set counting
   the same.
3. A logistic of the score then says how likely a single candidate is the wanted one (J. Platt, 1999).

Both are convex, so Newton's method finds the one best answer in a few steps.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from core.isolation.acting import acting_as
from evals.datasets import Dataset, Loaded
from evals.retrieval import NOT_IN_HEADLINE
from memory.embedders import get_embedder
from memory.embedders.base import RankingWeights
from memory.models import Corpus
from memory.models.corpora import Scope
from memory.search.chat_history import gather
from memory.search.fusion import features_of

Numbers = npt.NDArray[np.float64]

STEPS = 50
# Keeps weights that the data say little about near 0.
SHRINKAGE = 0.006
TINY = 1e-6
RECALL_AT = (1, 5, 10)


@dataclass(frozen=True, slots=True)
class RankedQuery:
    """`features`: a row for each candidate. `wanted`: which of them are. `gold`: how many texts are wanted in all."""

    dataset: str
    features: Numbers
    wanted: npt.NDArray[np.bool_]
    gold: int


def questions(dataset: Dataset, loaded: Loaded) -> list[RankedQuery]:
    """The headline queries of a loaded and embedded data set."""
    asked = []
    embedder = get_embedder()
    for query in dataset.queries:
        if query.category in NOT_IN_HEADLINE:
            continue
        user = loaded.users[query.user]
        with acting_as(user):
            vector = embedder.embed_query(query.text)
            found = gather(Scope(user, (Corpus.CHAT,)), query=query.text, vector=vector, embedder=embedder)
        features = features_of(
            found.candidates, ideal=found.ideal, unrelated=found.unrelated, convincing=found.calibration.convincing
        )
        gold = {str(source): turns for source, turns in _by_conversation(query.gold, loaded).items()}
        wanted = [place in gold.get(source, ()) for source, place in features]
        asked.append(RankedQuery(dataset.name, np.array([*features.values()]), np.array(wanted, bool), len(query.gold)))
    return asked


def fit(asked: Iterable[RankedQuery]) -> RankingWeights:
    """The weights under which the wanted are likeliest; queries whose wanted text no retriever found say nothing."""
    telling = [one for one in asked if one.wanted.any()]
    shares = _shares(telling)
    size = len(RankingWeights._fields)
    weights = np.zeros(size)
    for _ in range(STEPS):
        gradient, curvature = SHRINKAGE * weights, SHRINKAGE * np.eye(size)
        for one, share in zip(telling, shares, strict=True):
            likely = _softmax(one.features @ weights)
            mean = likely @ one.features
            gradient += share * (mean - one.features[one.wanted].mean(axis=0))
            curvature += share * ((one.features * likely[:, None]).T @ one.features - np.outer(mean, mean))
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-6:  # noqa: PLR2004
            break
    return RankingWeights(*map(float, weights))


def calibrate(asked: Iterable[RankedQuery], weights: RankingWeights) -> tuple[float, float]:
    """`slope` and `intercept` of the logistic that makes a probability of a score."""
    asked = list(asked)
    rows = [np.column_stack([one.features @ np.array(weights), np.ones(len(one.wanted))]) for one in asked]
    features, wanted = np.concatenate(rows), np.concatenate([one.wanted for one in asked])
    share = np.repeat(_shares(asked), [len(one.wanted) for one in asked])
    # It is 0 to 1, and nearly always 0: begun there, Newton's steps do not overshoot.
    line = np.array([0.0, np.log(wanted.mean() / (1 - wanted.mean()))])
    for _ in range(STEPS):
        likely = 1 / (1 + np.exp(-features @ line))
        # A few questions may be told apart without any doubt, and then no line is the best.
        gradient = TINY * line + features.T @ (share * (likely - wanted))
        curvature = TINY * np.eye(2) + (features * (share * likely * (1 - likely))[:, None]).T @ features
        line -= np.linalg.solve(curvature, gradient)
    return float(line[0]), float(line[1])


def recall(asked: Sequence[RankedQuery], weights: RankingWeights) -> dict[int, float]:
    """The share of the wanted texts among the first k, averaged over queries, by k."""
    found: dict[int, list[float]] = {k: [] for k in RECALL_AT}
    for one in asked:
        order = np.argsort(-(one.features @ np.array(weights)), kind="stable")
        for k in RECALL_AT:
            found[k].append(one.wanted[order[:k]].sum() / one.gold)
    return {k: float(np.mean(values)) for k, values in found.items()}


def _by_conversation(gold: Iterable[tuple[str, int]], loaded: Loaded) -> dict[object, set[int]]:
    wanted = set(gold)
    stored: dict[object, set[int]] = {}
    for (conversation_id, number), origin in loaded.origins.items():
        if origin in wanted:
            stored.setdefault(conversation_id, set()).add(number)
    return stored


def _shares(asked: Sequence[RankedQuery]) -> Numbers:
    """What each question counts, so that every data set counts the same; 1 in all."""
    names = [one.dataset for one in asked]
    return np.array([1 / names.count(name) for name in names]) / len(set(names))


def _softmax(scores: Numbers) -> Numbers:
    likely: Numbers = np.exp(scores - scores.max())
    likely /= likely.sum()
    return likely
