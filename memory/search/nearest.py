"""The nearest texts in meaning: parts are what has vectors, and each text is as near as its nearest part."""

from collections.abc import Iterable, Sequence
from typing import Protocol
from uuid import UUID

# Of a text's parts among the nearest, at the most of most texts.
USUAL_PARTS = 3


class FindParts(Protocol):
    """The nearest `limit` parts as (source_id, chunk_index, distance), the nearest first."""

    def __call__(self, *, limit: int) -> Sequence[tuple[UUID, int, float]]: ...


def nearest_texts(find: FindParts, *, limit: int, most_parts: int) -> dict[tuple[UUID, int], float]:
    """The first `limit` texts, each with the cosine distance of its nearest part, the nearest first.

    A few parts a text are fetched, since few texts crowd a ranking with theirs. Where they do, `most_parts` a text are
    enough whatever they are.
    """
    for parts_a_text in (USUAL_PARTS, most_parts):
        parts = find(limit=limit * parts_a_text)
        texts = fold(parts, limit=limit)
        if len(texts) == limit or len(parts) < limit * parts_a_text:
            break
    return texts


def fold(parts: Iterable[tuple[UUID, int, float]], *, limit: int) -> dict[tuple[UUID, int], float]:
    """The first `limit` texts of an ascending ranking of parts, each with its first part's distance."""
    texts: dict[tuple[UUID, int], float] = {}
    for source_id, chunk_index, distance in parts:
        if len(texts) == limit:
            break
        texts.setdefault((source_id, chunk_index), distance)
    return texts
