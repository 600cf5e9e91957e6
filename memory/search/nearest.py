"""The nearest texts in meaning: parts are what has vectors, and each text is as near as its nearest part."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol
from uuid import UUID

# Of a text's parts among the nearest, at the most of most texts.
USUAL_PARTS = 3


class FindParts(Protocol):
    """The nearest `limit` parts as (source_id, chunk_index, distance), the nearest first."""

    def __call__(self, *, limit: int) -> Sequence[tuple[UUID, int, float]]: ...


def nearest_texts(find: FindParts, *, limit: int, most_parts: int) -> dict[tuple[UUID, int], float]:
    """The first `limit` texts, each with the cosine distance of its nearest part, the nearest first."""
    for wanted in widening(limit, most_parts=most_parts):
        parts = find(limit=wanted)
        texts = fold(parts, limit=limit)
        if len(texts) == limit or len(parts) < wanted:
            break
    return texts


def widening(limit: int, *, most_parts: int) -> Iterator[int]:
    """How many parts to fetch for `limit` texts, and how many if those were of too few.

    A few parts a text will do, since few texts crowd a ranking with theirs. Where they do, `most_parts` a text are
    enough whatever they are.
    """
    yield limit * USUAL_PARTS
    yield limit * most_parts


def fold(parts: Iterable[tuple[UUID, int, float]], *, limit: int) -> dict[tuple[UUID, int], float]:
    """The first `limit` texts of an ascending ranking of parts, each with its first part's distance."""
    texts: dict[tuple[UUID, int], float] = {}
    for source_id, chunk_index, distance in parts:
        if len(texts) == limit:
            break
        texts.setdefault((source_id, chunk_index), distance)
    return texts
