"""The ranking of `search_history`, and the removal of results that repeat a better one; pure arithmetic.

The ranking is the specification's (FEAT-032, "Result Merging"):

1. A relevance is divided by the best of its source, if that is at least half of the best of all. So a source without
   anything relevant gets no 1. The quotient is raised to the fourth power, so that weight and age order similar
   results, and do not bury clearly better ones.
2. It is multiplied by the source's weight: a note written on purpose counts more than a message in passing.
3. It is multiplied by `exp(-rate * age in days)`: at a rate of 0.01 a result counts half after 69.3 days. Age alone
   never puts a result below one of its source that is half as relevant.
4. Neither hides a unique match. The only hit with one of the query's terms does not age; an exact hit is above all that
   are not.

A `Fingerprint` measures how much of a text another one contains: the share of its words in runs of three or more words
that the other has too, in the same order. So a copied passage counts in any context, a changed word affects only
itself, and two texts with the same common words have no overlap. A text of less than three words overlaps only with an
equal one. A text with a number that the better one lacks is different (another price, another flight), however similar
the rest is. Words are compared without regard to case or width; scripts without spaces count by the character.
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

from memory.chunking import UNSPACED

DAY = timedelta(days=1)

# The best of a source is relevant if it has this share of the best of all.
RELEVANT = 0.5

# Weight and age order similar results: with the fourth power, being a fifth more relevant outweighs 69 days of age.
# Measured by `run_evals --surface search_history` on a set of lives; 3 to 6 do about the same.
SHARPNESS = 4
# The oldest result counts as much as a new one that is half as relevant.
MOST_AGED = 0.5**SHARPNESS

RUN = 3

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


class Rankable(Protocol):
    """`relevance` is 0 to 1, on one scale for all sources; `at` is the time of the text."""

    @property
    def source(self) -> str: ...
    @property
    def relevance(self) -> float: ...
    @property
    def at(self) -> datetime: ...
    @property
    def is_exact(self) -> bool: ...
    @property
    def has_only(self) -> bool: ...


AnyHit = TypeVar("AnyHit", bound=Rankable)


@dataclass(frozen=True, slots=True)
class Ranked(Generic[AnyHit]):
    """A hit with its final score, 0 to 1."""

    hit: AnyHit
    score: float


def rank(hits: Iterable[AnyHit], *, weights: Mapping[str, float], rate: float, now: datetime) -> list[Ranked[AnyHit]]:
    """The best first; of equals the earlier one. `rate` is the decay per day, 0 for none."""
    hits = list(hits)
    bests = _bests(hits)
    weighted = [(hit.relevance / bests[hit.source]) ** SHARPNESS * weights[hit.source] for hit in hits]
    aged = [
        score * max(MOST_AGED, decay(hit.at, now=now, rate=rate)) for hit, score in zip(hits, weighted, strict=True)
    ]
    is_common = [not (hit.is_exact or hit.has_only) for hit in hits]
    if any(is_common):
        aged = [score if hit.has_only else old for hit, score, old in zip(hits, weighted, aged, strict=True)]
    return with_exact_first(Ranked(hit, score) for hit, score in zip(hits, aged, strict=True))


def with_exact_first(ranked: Iterable[Ranked[AnyHit]]) -> list[Ranked[AnyHit]]:
    """The best first, with exact matches above all others."""
    ranked = list(ranked)
    top = max((each.score for each in ranked if not each.hit.is_exact), default=0.0)
    lifted = [Ranked(each.hit, 1 - (1 - top) * (1 - each.score)) if each.hit.is_exact else each for each in ranked]
    return sorted(lifted, key=lambda each: (-each.score, not each.hit.is_exact))


def decay(at: datetime, *, now: datetime, rate: float) -> float:
    """1 for a text of the present, or with a future date."""
    return exp(-rate * max(0.0, (now - at) / DAY))


def _bests(hits: list[AnyHit]) -> dict[str, float]:
    """The divisor of each source's scores."""
    best = max((hit.relevance for hit in hits), default=0.0)
    bests: dict[str, float] = defaultdict(lambda: RELEVANT * best or 1.0)
    for hit in hits:
        bests[hit.source] = max(bests[hit.source], hit.relevance)
    return bests


@dataclass(frozen=True)
class Fingerprint:
    """A text in the form for comparisons."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Fingerprint":
        plain = unicodedata.normalize("NFKC", text).casefold()
        # Texts without words, such as emoji, are compared by their characters.
        return cls(tuple(_WORD.findall(plain)) or tuple("".join(plain.split())))

    @cached_property
    def runs(self) -> frozenset[tuple[str, ...]]:
        return frozenset(self._run(start) for start in range(len(self.words) - RUN + 1))

    @cached_property
    def numbers(self) -> frozenset[str]:
        return frozenset(word for word in self.words if any(character.isdigit() for character in word))

    def share_in(self, better: "Fingerprint") -> float:
        """The share of this text that `better` contains: 0 to 1."""
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
