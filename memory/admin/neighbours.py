"""What lies near a vector: the way to see that an embedding means something without reading what it stands for."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_
from uuid import UUID

from django.db.models import Q, Subquery
from pgvector.django import CosineDistance

from memory.models import Embedding

LIMIT = 10


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A row of another source; `distance` is the cosine distance, 0 for the same direction, 1 for unrelated."""

    pk: int
    source_id: UUID
    chunk_index: int
    part: int
    distance: float


def nearest_neighbours(embedding: Embedding) -> list[Neighbour]:
    """The nearest rows of the same person, corpus and model, other parts of the same source left out.

    The first query reads nothing but the covering index, which knows sources and not rows; the second finds the
    rows of the few sources that won. The vector itself stays in the database.
    """
    if embedding.embedded_at is None:
        return []
    vector = Embedding.objects.filter(pk=embedding.pk).values("vector")
    comparable = Embedding.objects.for_user(embedding.user).filter(corpus=embedding.corpus, model=embedding.model_id)
    others = (
        comparable.exclude(vector=None)
        .exclude(source_id=embedding.source_id, chunk_index=embedding.chunk_index)
        .annotate(distance=CosineDistance("vector", Subquery(vector)))
        .order_by("distance")
    )
    winners = set(others.values_list("source_id", "chunk_index")[:LIMIT])
    if not winners:
        return []
    rows = others.filter(_any_of(winners)).values_list("pk", "source_id", "chunk_index", "part", "distance")
    return [Neighbour(*row) for row in rows[:LIMIT]]


def _any_of(sources: Iterable[tuple[UUID, int]]) -> Q:
    return reduce(or_, (Q(source_id=source_id, chunk_index=index) for source_id, index in sources))
