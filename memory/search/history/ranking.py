"""How the sources' results become one ranking; pure arithmetic, the specification's (FEAT-032, "Result Merging").

1. Each source measures in its own way, so its scores are divided by its best.
2. Times the source's weight: what was written down on purpose counts for more than what was said in passing.
3. Times `exp(-rate * age in days)`: at a rate of 0.01 a result counts half after 69.3 days.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import exp
from typing import Generic, Protocol, TypeVar

DAY = timedelta(days=1)


class Rankable(Protocol):
    """`raw` is the source's own measure, at least 0, higher is better; `at` is when it was said."""

    @property
    def source(self) -> str: ...
    @property
    def raw(self) -> float: ...
    @property
    def at(self) -> datetime: ...


Hit = TypeVar("Hit", bound=Rankable)


@dataclass(frozen=True, slots=True)
class Ranked(Generic[Hit]):
    """A hit with its final score, from 0 to its source's weight."""

    hit: Hit
    score: float


def rank(hits: Iterable[Hit], *, weights: Mapping[str, float], rate: float, now: datetime) -> list[Ranked[Hit]]:
    """The best first; of equals the one that came first. `rate` is the decay a day, 0 for none."""
    hits = list(hits)
    best = _best_by_source(hits)
    ranked = [
        Ranked(hit, _share(hit.raw, best[hit.source]) * weights[hit.source] * decay(hit.at, now=now, rate=rate))
        for hit in hits
    ]
    return sorted(ranked, key=lambda each: -each.score)


def decay(at: datetime, *, now: datetime, rate: float) -> float:
    """1 for what is said now, or is dated ahead of now."""
    return exp(-rate * max(0.0, (now - at) / DAY))


def _best_by_source(hits: list[Hit]) -> dict[str, float]:
    best: dict[str, float] = defaultdict(float)
    for hit in hits:
        best[hit.source] = max(best[hit.source], hit.raw)
    return best


def _share(raw: float, best: float) -> float:
    return raw / best if best > 0 else 0.0
