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

from collections.abc import Collection, Mapping
from math import exp, inf, log1p, sqrt
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from memory.embedders import Calibration
    from memory.embedders.base import RankingWeights
    from memory.models.corpora import PlainKey

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
