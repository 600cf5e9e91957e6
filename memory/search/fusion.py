"""Ranks hits, as plain arithmetic: one relevance for terms and meaning, and one list without repetitions.

Combines terms and meaning into one ranking: a relevance for every text, of any source, on one scale.

    relevance = 1 / (1 + exp(-(slope * score + intercept)))      score = sum of weight * feature

The features are the fields of `RankingWeights`, each about 0 to 1. They measure how near a text is in meaning, how much
of the query's terms it contains, whether it is more than a few words, and whether it is of a time that the query names.
The relevance is the likelihood that a text is the wanted one. Three ideas are in the features:

1. The weight of terms depends on their reliability in this query: on the best text's share of the query's terms, on its
   lead over the others, and on the rarity of the terms. A question in other words than the text shares a few common
   terms with many texts, and none of them leads.
2. Beside a long answer, the user's message is counted again by itself, by terms and by meaning.
3. A short remark depends on the turns before and after it.

Pure arithmetic: the caller supplies the hits with their figures. The choice of the weights, and its limits:
docs/decisions/0009.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from math import exp, inf, log1p, sqrt
from operator import mul
from typing import TYPE_CHECKING

from memory.chunking import UNSPACED

if TYPE_CHECKING:
    from memory.backends.embedders import Calibration
    from memory.models.documents import Hit

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


def fuse(
    hits: "Sequence[Hit]",
    *,
    ideal: float,
    unrelated: float,
    calibration: "Calibration",
    times: Callable[[datetime], tuple[float, float]] | None = None,
) -> "list[Hit]":
    """The hits with their relevance, the best first.

    `ideal` is the highest score that any text could have by its terms, `unrelated` the distance from which meaning
    counts nothing. `times`: whether a time is of a month, and of a day, that the query names; None if it names none.
    """
    features = features_of(hits, ideal=ideal, unrelated=unrelated, convincing=calibration.convincing, times=times)
    scores = (sum(map(mul, calibration.weights, values)) for values in features)
    fused = [
        hit._replace(relevance=1 / (1 + exp(-(calibration.slope * score + calibration.intercept))))
        for hit, score in zip(hits, scores, strict=True)
    ]
    # Of equals the nearer one: beyond `unrelated`, only distance distinguishes the hits.
    return sorted(fused, key=lambda hit: (-hit.relevance, inf if hit.distance is None else hit.distance, hit.key))


def features_of(
    hits: "Sequence[Hit]",
    *,
    ideal: float,
    unrelated: float,
    convincing: float,
    times: Callable[[datetime], tuple[float, float]] | None = None,
) -> list[tuple[float, ...]]:
    """For each hit the features that `RankingWeights` weighs, in the order of its fields.

    Terms and nearness are relative to the query's best. If nothing is convincingly near, the nearest counts less.
    """
    share, holding, lead, rarity = _trust(sorted((hit.lexical for hit in hits), reverse=True), ideal)
    telling = min(1.0, share / TELLING_SHARE)
    terms, terms_of_user = _shares([hit.lexical for hit in hits]), _shares([hit.user_lexical for hit in hits])
    nearest = min((hit.distance for hit in hits if hit.distance is not None), default=unrelated)
    unit = 1 / max(unrelated - nearest, convincing)
    # A text without a vector is assumed to be as near as its shared terms suggest.
    closeness = [
        of_terms / unit if hit.distance is None else max(0.0, unrelated - hit.distance)
        for hit, of_terms in zip(hits, terms, strict=True)
    ]
    nearness = [unit * close for close in closeness]
    user_nearness = [
        near if hit.user_distance is None else unit * max(0.0, unrelated - hit.user_distance)
        for hit, near in zip(hits, nearness, strict=True)
    ]
    of_times = [(0.0, 0.0) if times is None else times(hit.at) for hit in hits]
    shortness = [1 / (1 + (hit.length / REMARK_TERMS) ** 2) for hit in hits]
    columns = (
        nearness,
        _own_side(user_nearness, nearness, shortness),
        [short * near for short, near in zip(shortness, _beside(hits, nearness), strict=True)],
        [close / convincing for close in closeness],
        [of_terms * holding for of_terms in terms],
        [of_terms * lead for of_terms in terms],
        [of_terms * rarity for of_terms in terms],
        [own * telling for own in _own_side(terms_of_user, terms, shortness)],
        [short * of_terms * telling for short, of_terms in zip(shortness, _beside(hits, terms), strict=True)],
        [log1p(min(hit.length, LONG_ENOUGH)) / LENGTH_SCALE for hit in hits],
        [month for month, _ in of_times],
        [day for _, day in of_times],
    )
    return list(zip(*columns, strict=True))


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


def _shares(scores: list[float]) -> list[float]:
    """Each as a share of the best one."""
    best = max(scores, default=0.0)
    unit = 1 / best if best > 0 else 0.0
    return [unit * score for score in scores]


def _own_side(said: list[float], whole: list[float], shortness: list[float]) -> list[float]:
    """The value of the user's message by itself: of a remark, a part of the whole."""
    return [
        (1 - short) * own + OWN_SIDE * short * both for own, both, short in zip(said, whole, shortness, strict=True)
    ]


def _beside(hits: "Sequence[Hit]", values: list[float]) -> list[float]:
    """For each hit the sum of these values over the turns before and after it."""
    by_key = {hit.key: value for hit, value in zip(hits, values, strict=True)}
    return [by_key.get((source, place - 1), 0.0) + by_key.get((source, place + 1), 0.0) for (source, place), *_ in hits]


# The ranking of `search_history` is the specification's (FEAT-032, "Result Merging"):
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
# 5. Weight and age order results within sets of five, so that neither keeps a likelier text out: relevance alone
#    decides which texts are in a set. Relevances of different sources compare badly, so a set has one text of each
#    source beside the turns. On the development lives R@5 rises from 78.9 to 83.1, MRR from 70.4 to 73.0.
#
# A `Fingerprint` measures how much of a text another one contains: the share of its words in runs of three or more
# words that the other has too, in the same order. So a copied passage counts in any context, a changed word affects
# only itself, and two texts with the same common words have no overlap. A text of less than three words overlaps only
# with an equal one. A text with a number that the better one lacks is different (another price, another flight),
# however similar the rest is. Words are compared without regard to case or width; scripts without spaces count by the
# character.

# The best of a source is relevant if it has this share of the best of all.
RELEVANT = 0.5

# Weight and age order similar results: with the fourth power, being a fifth more relevant outweighs 69 days of age.
# Measured by `run_evals --surface search_history` on a set of lives; 3 to 6 do about the same.
SHARPNESS = 4
# The oldest result counts as much as a new one that is half as relevant.
MOST_AGED = 0.5**SHARPNESS

RUN = 3
# A set of results, and the source of those that are turns.
SET, TURNS = 5, "messages"

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


def rank(hits: "Iterable[Hit]", *, weights: Mapping[str, float], rate: float, now: datetime) -> "list[Hit]":
    """The hits with their score, the best first; of equals the earlier one. `rate` is the decay per day, 0 for none.

    `printed` is the specification's product: the share of the source's best, the weight and the decay.
    """
    hits = list(hits)
    best = max((hit.relevance for hit in hits), default=0.0)
    bests: dict[str, float] = defaultdict(lambda: RELEVANT * best or 1.0)
    for hit in hits:
        bests[hit.source] = max(bests[hit.source], hit.relevance)
    is_any_common = any(not (hit.is_exact or hit.has_only) for hit in hits)
    scored = []
    for hit in hits:
        share, weight = hit.relevance / bests[hit.source], weights[hit.source]
        aged = max(MOST_AGED, decay(hit.at, now=now, rate=rate))
        score = share**SHARPNESS * weight * (1.0 if hit.has_only and is_any_common else aged)
        scored.append(hit._replace(score=score, printed=share * weight * aged))
    exact = [hit for hit in with_exact_first(scored) if hit.is_exact]
    return [*exact, *_in_sets([hit for hit in scored if not hit.is_exact])]


def _in_sets(hits: "Iterable[Hit]") -> "Iterator[Hit]":
    """Sets of five, each ordered by score. A set has the most relevant hits: turns, and one of each other source."""
    sources: dict[str, list[Hit]] = defaultdict(list)
    for hit in reversed(sorted(hits, key=lambda hit: -hit.relevance)):
        sources[hit.source].append(hit)
    while sources:
        chosen: list[Hit] = []
        while sources and len(chosen) < SET:
            full = {hit.source for hit in chosen} - {TURNS}
            best = max(sources, key=lambda source: (source not in full, sources[source][-1].relevance))
            chosen.append(sources[best].pop())
            if not sources[best]:
                del sources[best]
        yield from sorted(chosen, key=lambda hit: -hit.score)


def with_exact_first(hits: "Iterable[Hit]") -> "list[Hit]":
    """The best first, with exact matches above all others."""
    hits = list(hits)
    top = max((hit.score for hit in hits if not hit.is_exact), default=0.0)
    lifted = [hit._replace(score=1 - (1 - top) * (1 - hit.score)) if hit.is_exact else hit for hit in hits]
    return sorted(lifted, key=lambda hit: (-hit.score, not hit.is_exact))


def decay(at: datetime, *, now: datetime, rate: float) -> float:
    """1 for a text of the present, or with a future date."""
    return exp(-rate * max(0.0, (now - at) / timedelta(days=1)))


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
