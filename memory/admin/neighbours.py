"""What lies near a vector: the way to see that an embedding means something without reading what it stands for."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import F, Subquery
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
    """The nearest rows of the same person, corpus and model, other passages of the same text left out; exact.

    No vector leaves the database.
    """
    if embedding.embedded_at is None:
        return []
    vector = Subquery(Embedding.objects.filter(pk=embedding.pk).values("vector"))
    comparable = Embedding.objects.filter(
        user=embedding.user_id, corpus=embedding.corpus, model=embedding.model_id, vector__isnull=False
    )
    others = comparable.exclude(source_id=embedding.source_id, chunk_index=embedding.chunk_index)
    nearest = others.annotate(distance=CosineDistance("vector", vector)).order_by("distance", "pk")[:LIMIT]
    return [Neighbour(*row) for row in nearest.values_list("pk", "source_id", "chunk_index", "part", F("distance"))]
