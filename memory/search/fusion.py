"""Combines terms and meaning into one ranking: a relevance for every text, of any source, on one scale.

    relevance = 1 / (1 + exp(-(slope * score + intercept)))      score = sum of weight * feature

The features are the fields of `RankingWeights`, each about 0 to 1. They measure how near a text is in meaning, how much
of the query's terms it contains, and whether it is more than a few words. The relevance is the likelihood that a text
is the wanted one. Three ideas are in the features:

1. The weight of terms depends on their reliability in this query: on the best text's share of the query's terms, on its
   lead over the others, and on the rarity of the terms. A question in other words than the text shares a few common
   terms with many texts, and none of them leads.
2. Beside a long answer, the user's message is counted again by itself, by terms and by meaning.
3. A short remark depends on the turns before and after it.

Pure arithmetic: the caller supplies the candidates and their figures. The choice of the weights, and its limits:
docs/decisions/0009.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from math import exp, inf, log1p, sqrt
from operator import mul
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from memory.chunking import UNSPACED

if TYPE_CHECKING:
    from memory.backends.embedders import Calibration, RankingWeights
    from memory.models.documents import PlainKey

# With this many terms a turn is halfway between a remark and a text that needs no context.
REMARK_TERMS = 120
# The lead of the best text by terms is measured against the text at this rank.
BEHIND = 5
# A text with this share of the query's terms makes its neighbours and its own side count in full.
TELLING_SHARE = 0.35
# Terms with a smaller share than this match by chance, however rare they are and however large their lead is.
FAINT_SHARE = 0.05
# BM25 of some three rare terms, and the multiple of it that counts at most.
RARE_SCORE, MOST_RARE = 10.0, 1.5
# A text with this many terms is long enough: more of them make it no likelier to be the wanted one.
LONG_ENOUGH = 90
# Scales the logarithm of a length to about 1.
LENGTH_SCALE = 5.0
# A remark is mostly its user's message: so much of the whole counts as that message by itself.
OWN_SIDE = 0.5


class Candidate(NamedTuple):
    """The retrievers' findings about a text. `distance` is None without a vector; `terms` is its length."""

    key: "PlainKey"
    terms: int
    lexical: float = 0.0
    said_lexical: float = 0.0
    distance: float | None = None
    said_distance: float | None = None


class _Nearby(NamedTuple):
    """A candidate within its query: shares of the best one's terms and nearness, and its need for context."""

    words: float
    said_words: float
    nearness: float
    said_nearness: float
    closeness: float
    shortness: float


def fuse(
    candidates: Collection[Candidate], *, ideal: float, unrelated: float, calibration: "Calibration"
) -> "dict[PlainKey, float]":
    """Relevance by key, 0 to 1, the best first.

    `ideal` is the highest score that any text could have by its terms, `unrelated` the distance from which meaning
    counts nothing.
    """
    features = features_of(candidates, ideal=ideal, unrelated=unrelated, convincing=calibration.convincing)
    relevances = {key: _relevance(values, calibration) for key, values in features.items()}
    # Of equals the nearer one: beyond `unrelated`, only distance distinguishes the candidates.
    distances = {one.key: inf if one.distance is None else one.distance for one in candidates}
    ranking = sorted((-relevance, distances[key], key) for key, relevance in relevances.items())
    return {key: -negative for negative, _, key in ranking}


def features_of(
    candidates: Collection[Candidate], *, ideal: float, unrelated: float, convincing: float
) -> "dict[PlainKey, tuple[float, ...]]":
    """The features that `RankingWeights` weighs, in the order of its fields, by key."""
    best = sorted((one.lexical for one in candidates), reverse=True)
    share, holding, lead, rarity = _trust(best, ideal)
    telling = min(1.0, share / TELLING_SHARE)
    nearby = _within(candidates, best[0] if best else 0.0, unrelated, convincing)
    return {
        one.key: (
            here.nearness,
            (1 - here.shortness) * here.said_nearness + OWN_SIDE * here.shortness * here.nearness,
            here.shortness * sum(each.nearness for each in _around(one.key, nearby)),
            here.closeness / convincing,
            here.words * holding,
            here.words * lead,
            here.words * rarity,
            ((1 - here.shortness) * here.said_words + OWN_SIDE * here.shortness * here.words) * telling,
            here.shortness * sum(each.words for each in _around(one.key, nearby)) * telling,
            log1p(min(one.terms, LONG_ENOUGH)) / LENGTH_SCALE,
        )
        for one, here in zip(candidates, nearby.values(), strict=True)
    }


def _trust(best: list[float], ideal: float) -> tuple[float, float, float, float]:
    """The best text's share of the query's terms, and the trust in terms by that share, by its lead and by their rarity
    (see the module). A faint share makes all three small.
    """
    if not best or best[0] <= 0:
        return 0.0, 0.0, 0.0, 0.0
    behind = best[min(BEHIND, len(best) - 1)]
    share = best[0] / max(ideal, best[0])
    sure = share**2 / (share**2 + FAINT_SHARE**2)
    return share, sure * sqrt(share), sure * (best[0] - behind) / best[0], sure * min(MOST_RARE, best[0] / RARE_SCORE)


def _within(
    candidates: Collection[Candidate], best: float, unrelated: float, convincing: float
) -> "dict[PlainKey, _Nearby]":
    """Every candidate relative to the query's best. If nothing is convincingly near, the nearest counts less."""
    nearest = min((one.distance for one in candidates if one.distance is not None), default=unrelated)
    near_unit = 1 / max(unrelated - nearest, convincing)
    word_unit = 1 / best if best > 0 else 0.0
    best_said = max((one.said_lexical for one in candidates), default=0.0)
    said_unit = 1 / best_said if best_said > 0 else 0.0
    nearby = {}
    for key, terms, lexical, said_lexical, distance, said_distance in candidates:
        words = word_unit * lexical
        # A text without a vector is assumed to be as near as its shared terms suggest.
        closeness = words / near_unit if distance is None else max(0.0, unrelated - distance)
        said_closeness = closeness if said_distance is None else max(0.0, unrelated - said_distance)
        nearby[key] = _Nearby(
            words=words,
            said_words=said_unit * said_lexical,
            nearness=near_unit * closeness,
            said_nearness=near_unit * said_closeness,
            closeness=closeness,
            shortness=1 / (1 + (terms / REMARK_TERMS) ** 2),
        )
    return nearby


def _around(key: "PlainKey", nearby: "Mapping[PlainKey, _Nearby]") -> list[_Nearby]:
    source, place = key
    return [nearby[beside] for beside in ((source, place - 1), (source, place + 1)) if beside in nearby]


def _relevance(features: "tuple[float, ...]", calibration: "Calibration") -> float:
    weights: RankingWeights = calibration.weights
    score = sum(map(mul, weights, features))
    return 1 / (1 + exp(-(calibration.slope * score + calibration.intercept)))


# --- The ranking of `search_history`, and the removal of results that repeat a better one; pure arithmetic ---
# The ranking is the specification's (FEAT-032, "Result Merging"):
#
# 1. A relevance is divided by the best of its source, if that is at least half of the best of all. So a source without
#    anything relevant gets no 1. The quotient is raised to the fourth power, so that weight and age order similar
#    results, and do not bury clearly better ones.
# 2. It is multiplied by the source's weight: a note written on purpose counts more than a message in passing.
# 3. It is multiplied by `exp(-rate * age in days)`: at a rate of 0.01 a result counts half after 69.3 days. Age alone
#    never puts a result below one of its source that is half as relevant.
# 4. Neither hides a unique match. The only hit with one of the query's terms does not age; an exact hit is above all
# that
#    are not.
#
# A `Fingerprint` measures how much of a text another one contains: the share of its words in runs of three or more
# words that the other has too, in the same order. So a copied passage counts in any context, a changed word affects
# only itself, and two texts with the same common words have no overlap. A text of less than three words overlaps only
# with an equal one. A text with a number that the better one lacks is different (another price, another flight),
# however similar the rest is. Words are compared without regard to case or width; scripts without spaces count by the
# character.

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
