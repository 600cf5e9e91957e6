"""The ranking of `search_history`, and which results only repeat a better one; pure arithmetic.

The ranking is the specification's (FEAT-032, "Result Merging"):

1. Each source measures in its own way, so its scores are divided by its best.
2. Times the source's weight: what was written down on purpose counts for more than what was said in passing.
3. Times `exp(-rate * age in days)`: at a rate of 0.01 a result counts half after 69.3 days.

A `Fingerprint` tells how much of a text another one has: the share of its words that stand in a run of three or more
words which the other has as well, in the same order. So a copied passage counts in whatever surroundings, a changed
word costs itself and no more, and two texts that merely use the same common words have no overlap. A text of less than
three words overlaps with none but its equal. A text with a number that the better one lacks says something else
(another price, another flight), however alike the rest is. Words are compared without regard to case or width; the
scripts that are written without spaces count by the character.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from math import exp
from typing import Generic, Protocol, TypeVar

DAY = timedelta(days=1)

RUN = 3

# Kana, Han with its extensions and compatibility forms, Thai to Lao, Burmese, Khmer.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


class Rankable(Protocol):
    """`raw` is the source's own measure, at least 0, higher is better; `at` is when it was said."""

    @property
    def source(self) -> str: ...
    @property
    def raw(self) -> float: ...
    @property
    def at(self) -> datetime: ...


AnyHit = TypeVar("AnyHit", bound=Rankable)


@dataclass(frozen=True, slots=True)
class Ranked(Generic[AnyHit]):
    """A hit with its final score, from 0 to its source's weight."""

    hit: AnyHit
    score: float


def rank(hits: Iterable[AnyHit], *, weights: Mapping[str, float], rate: float, now: datetime) -> list[Ranked[AnyHit]]:
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


def _best_by_source(hits: list[AnyHit]) -> dict[str, float]:
    best: dict[str, float] = defaultdict(float)
    for hit in hits:
        best[hit.source] = max(best[hit.source], hit.raw)
    return best


def _share(raw: float, best: float) -> float:
    return raw / best if best > 0 else 0.0


@dataclass(frozen=True)
class Fingerprint:
    """A text as it is compared."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Fingerprint":
        plain = unicodedata.normalize("NFKC", text).casefold()
        # What has no words at all, such as emoji, is compared by its characters.
        return cls(tuple(_WORD.findall(plain)) or tuple("".join(plain.split())))

    @cached_property
    def runs(self) -> frozenset[tuple[str, ...]]:
        return frozenset(self._run(start) for start in range(len(self.words) - RUN + 1))

    @cached_property
    def numbers(self) -> frozenset[str]:
        return frozenset(word for word in self.words if any(character.isdigit() for character in word))

    def share_in(self, better: "Fingerprint") -> float:
        """How much of this text `better` has: 0 to 1."""
        if self.words == better.words:
            return 1.0
        if self.runs.isdisjoint(better.runs) or not self.numbers <= better.numbers:
            return 0.0
        covered = bytearray(len(self.words))
        for start in range(len(self.words) - RUN + 1):
            if self._run(start) in better.runs:
                covered[start : start + RUN] = b"\1" * RUN
        return sum(covered) / len(covered)

    def _run(self, start: int) -> tuple[str, ...]:
        return self.words[start : start + RUN]
