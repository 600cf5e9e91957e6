"""How terms and meaning become one ranking: scores are fused, not ranks, since how much better the best is matters.

1. Each retriever's scores are brought to 0..1 within one query: the best candidate gets 1, in meaning only if it is
   near enough to convince; a text without the query's terms, or as far from it as the person's unrelated texts, gets 0.
2. Beside a long answer, what the user said is counted again by itself, in both.
3. Both are added with the model's weights. A text that waits for its vector is judged by its terms alone.
4. A short remark leans on the turns before and after it.

Pure arithmetic: what a candidate is and where its figures come from is its caller's affair. How the weights were
chosen, and what that does not prove: docs/decisions/0009.
"""

from collections.abc import Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from memory.embedders import Calibration
    from memory.models.corpora import PlainKey

# Most questions are about what the user said, and a long answer drowns it.
SAID_SHARE = 0.4
# "Yes, last Tuesday!" says neither what nor who; the turn before it does.
NEIGHBOUR_SHARE = 0.2
# At so many terms a turn stands halfway between a remark and a text that needs no context.
REMARK_TERMS = 120


class Candidate(NamedTuple):
    """What the retrievers know of a text. `distance` is None while it has no vector; `terms` is its length."""

    key: "PlainKey"
    terms: int
    lexical: float = 0.0
    said_lexical: float = 0.0
    distance: float | None = None
    said_distance: float | None = None


def fuse(candidates: Collection[Candidate], *, unrelated: float, calibration: "Calibration") -> "dict[PlainKey, float]":
    """Relevance by key, the best first. `unrelated` is the distance at which likeness in meaning counts for nothing."""
    by_terms, by_said_terms, by_nearness = _units(candidates, unrelated, calibration.convincing)
    lexical_weight = calibration.lexical_weight
    own = {}
    leaning = {}
    distances = {}
    for key, terms, lexical, said_lexical, distance, said_distance in candidates:
        shortness = _shortness(terms)
        share = SAID_SHARE * (1 - shortness)
        score = (1 - share) * by_terms * lexical + share * by_said_terms * said_lexical
        if distance is not None:
            closeness = unrelated - distance
            said_closeness = closeness if said_distance is None else unrelated - said_distance
            near = by_nearness * ((1 - share) * max(0.0, closeness) + share * max(0.0, said_closeness))
            score = lexical_weight * score + (1 - lexical_weight) * near
        own[key] = score
        leaning[key] = NEIGHBOUR_SHARE * shortness
        # Beyond the unrelated, and in a history of a few turns, distance alone tells the candidates apart.
        distances[key] = inf if distance is None else distance
    ranking = [(-score - leaning[key] * _around(key, own), distances[key], key) for key, score in own.items()]
    return {key: -negative for negative, _, key in sorted(ranking)}


def _units(candidates: Collection[Candidate], unrelated: float, convincing: float) -> tuple[float, float, float]:
    """The factors that bring the best of each retriever to 1; in terms of both sides, of the user's own, in meaning.

    Where nothing is convincingly near, the nearest is not worth as much: a name or a number that no model knows lies
    about as far from everything.
    """
    nearest = min((one.distance for one in candidates if one.distance is not None), default=unrelated)
    return (
        _unit(max((one.lexical for one in candidates), default=0.0)),
        _unit(max((one.said_lexical for one in candidates), default=0.0)),
        _unit(max(unrelated - nearest, convincing)),
    )


def _unit(best: float) -> float:
    """Nothing at all stays nothing."""
    return 1 / best if best > 0 else 0.0


def _shortness(terms: int) -> float:
    """1 for a term or two, a half at `REMARK_TERMS`, about nothing for a page."""
    return 1 / (1 + (terms / REMARK_TERMS) ** 2)


def _around(key: "PlainKey", own: "Mapping[PlainKey, float]") -> float:
    source, place = key
    return own.get((source, place - 1), 0.0) + own.get((source, place + 1), 0.0)
