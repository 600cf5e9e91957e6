"""How well one ranked list answers one query, and what that comes to over many: arithmetic without Django.

Every score is a share between 0 and 1. `ranked` holds what was found, best first, each at most once; `gold` what should
have been. Anything beyond the end of `ranked` counts as not found.
"""

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RECALL_AT = (1, 5, 10, 25)
ALL_AT = (5, 10)
NDCG_AT = 10
# The heading of each metric's column.
HEADINGS = {
    **{f"recall@{k}": f"R@{k}" for k in RECALL_AT},
    **{f"all@{k}": f"all@{k}" for k in ALL_AT},
    "mrr": "MRR",
    f"ndcg@{NDCG_AT}": f"nDCG@{NDCG_AT}",
}
NAMES = tuple(HEADINGS)

Scores = dict[str, float]
"""One number for each of NAMES."""
Interval = tuple[float, float]


def recall(ranked: Sequence[Hashable], gold: Collection[Hashable], *, k: int) -> float:
    """The share of `gold` among the first `k`."""
    return len(set(ranked[:k]) & set(gold)) / len(set(gold))


def has_all(ranked: Sequence[Hashable], gold: Collection[Hashable], *, k: int) -> float:
    """1.0 if the whole of `gold` is among the first `k`, else 0.0."""
    return float(set(gold) <= set(ranked[:k]))


def reciprocal_rank(ranked: Sequence[Hashable], gold: Collection[Hashable]) -> float:
    """1 / the rank of the first that is gold, counted from 1; 0.0 if none is."""
    return next((1 / rank for rank, item in enumerate(ranked, start=1) if item in gold), 0.0)


def ndcg(ranked: Sequence[Hashable], gold: Collection[Hashable], *, k: int) -> float:
    """Normalised discounted cumulative gain (Järvelin and Kekäläinen, 2002) with gains of 0 and 1.

    A hit at rank r gains 1 / log2(r + 1); the sum is divided by that of the best order there is.
    """
    gained = sum(1 / math.log2(rank + 1) for rank, item in enumerate(ranked[:k], start=1) if item in gold)
    best = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(set(gold)), k) + 1))
    return gained / best


def score(ranked: Sequence[Hashable], gold: Collection[Hashable]) -> Scores:
    """Every metric of one query, by name."""
    return {
        **{f"recall@{k}": recall(ranked, gold, k=k) for k in RECALL_AT},
        **{f"all@{k}": has_all(ranked, gold, k=k) for k in ALL_AT},
        "mrr": reciprocal_rank(ranked, gold),
        f"ndcg@{NDCG_AT}": ndcg(ranked, gold, k=NDCG_AT),
    }


def mean(scores: Iterable[Scores]) -> Scores:
    """Each metric's mean over queries; empty if there are no queries."""
    every = list(scores)
    return {name: math.fsum(one[name] for one in every) / len(every) for name in NAMES} if every else {}


def confidence_intervals(
    scores_by_person: Mapping[str, Sequence[Scores]], *, seed: int = 0, resamples: int = 2000
) -> dict[str, Interval]:
    """For each metric's mean, the interval in which it stays in 95 % of the resamples (percentile bootstrap).

    People are drawn, with all of their queries, rather than queries: those of one person are not independent.
    """
    people = [scores for scores in scores_by_person.values() if scores]
    if not people:
        return {}
    counts = np.array([len(scores) for scores in people])
    sums = np.array([[math.fsum(one[name] for one in scores) for name in NAMES] for scores in people])
    drawn = np.random.default_rng(seed).integers(len(people), size=(resamples, len(people)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1, keepdims=True)
    low, high = np.percentile(means, [2.5, 97.5], axis=0)
    return {name: (float(low[column]), float(high[column])) for column, name in enumerate(NAMES)}


def p50_and_p95(values: Sequence[float], *, digits: int) -> tuple[float, float]:
    """The median and the 95th percentile, rounded to so many digits; not a number where there are no values."""
    p50, p95 = np.percentile(values or [math.nan], [50, 95])
    return round(float(p50), digits), round(float(p95), digits)


def percents(shares: Scores) -> list[str]:
    return [f"{100 * share:.1f}" for share in shares.values()]


def share(values: Iterable[float]) -> float:
    """The mean of shares, or of yes and no; 0.0 of none."""
    every = list(values)
    return math.fsum(every) / len(every) if every else 0.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Of requests that succeeded at once, in milliseconds."""

    count: int = 0
    p50: float = 0.0
    p95: float = 0.0
    longest: float = 0.0

    @classmethod
    def of(cls, milliseconds: Sequence[float]) -> "Latency":
        if not milliseconds:
            return cls()
        return cls(len(milliseconds), *p50_and_p95(milliseconds, digits=1), round(max(milliseconds), 1))

    def __str__(self) -> str:
        if not self.count:
            return "none"
        return f"{self.p50:,.0f} / {self.p95:,.0f} / {self.longest:,.0f} ms (n = {self.count:,})"
