"""How words and meaning become one ranking: scores are fused, not ranks, since how much better the best is matters.

1. Each leg is brought to 0..1 within one query: the best candidate gets 1, in meaning only if it is near enough to
   convince; a text without the query's words, or as far from it as the person's unrelated texts, gets 0.
2. Beside a long answer, what the person said is counted again by itself, in both legs.
3. The legs are added with fixed weights. A text that waits for its vector is judged by its words alone.
4. A short remark leans on the turns before and after it.

Pure arithmetic: what a candidate is and where its figures come from is its caller's affair. How the weights were
chosen, and what that does not prove: docs/decisions/0009.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from uuid import UUID

Key = tuple[UUID, int]
"""Which text: a source and the place in it; for chat the conversation and the turn number."""

# Nearly the same for both: which leg is better differs from data to data; that the other adds to it does not.
LEXICAL_WEIGHT = 0.45
# Most questions are about what the person said, and a long answer drowns it.
SAID_SHARE = 0.4
# So much nearer than the unrelated is what answers most questions, in cosine distance. Where nothing comes as near, the
# nearest is not worth as much: a name or a number that no model knows lies about as far from everything.
CONVINCING = 0.35
# "Yes, last Tuesday!" says neither what nor who; the turn before it does.
NEIGHBOUR_SHARE = 0.2
# At so many words, stop words not counted, a turn stands halfway between a remark and a text that needs no context.
REMARK_WORDS = 120


@dataclass(frozen=True, slots=True)
class Candidate:
    """What the legs know of a text. `distance` is None while it has no vector; `words` is its length."""

    key: Key
    words: int
    lexical: float = 0.0
    said_lexical: float = 0.0
    distance: float | None = None
    said_distance: float | None = None


def fuse(candidates: Collection[Candidate], *, unrelated: float) -> dict[Key, float]:
    """Relevance by key, the best first. `unrelated` is the distance at which likeness in meaning counts for nothing."""
    lexical = _unit(max((one.lexical for one in candidates), default=0.0))
    said_lexical = _unit(max((one.said_lexical for one in candidates), default=0.0))
    nearest = max((unrelated - one.distance for one in candidates if one.distance is not None), default=0.0)
    nearness = _unit(max(nearest, CONVINCING))
    own = {}
    for one in candidates:
        share = SAID_SHARE * (1 - _shortness(one.words))
        by_words = _mix(lexical * one.lexical, said_lexical * one.said_lexical, share)
        own[one.key] = by_words
        if one.distance is not None:
            said = one.distance if one.said_distance is None else one.said_distance
            near = _mix(_near(unrelated - one.distance, nearness), _near(unrelated - said, nearness), share)
            own[one.key] = _mix(near, by_words, LEXICAL_WEIGHT)
    fused = {one.key: own[one.key] + _from_neighbours(one, own) for one in candidates}
    # Beyond the unrelated, and in a history of a few turns, distance alone tells the candidates apart.
    return {one.key: fused[one.key] for one in sorted(candidates, key=lambda one: _order(one, fused[one.key]))}


def _order(one: Candidate, score: float) -> tuple[float, float, Key]:
    return (-score, inf if one.distance is None else one.distance, one.key)


def _from_neighbours(one: Candidate, own: Mapping[Key, float]) -> float:
    source, place = one.key
    around = own.get((source, place - 1), 0.0) + own.get((source, place + 1), 0.0)
    return NEIGHBOUR_SHARE * _shortness(one.words) * around


def _shortness(words: int) -> float:
    """1 for a word or two, a half at `REMARK_WORDS`, about nothing for a page."""
    return 1 / (1 + (words / REMARK_WORDS) ** 2)


def _unit(best: float) -> float:
    """The factor that brings the best to 1; nothing at all stays nothing."""
    return 1 / best if best > 0 else 0.0


def _near(closeness: float, unit: float) -> float:
    return max(0.0, closeness * unit)


def _mix(one: float, other: float, share_of_other: float) -> float:
    return (1 - share_of_other) * one + share_of_other * other
