"""What lies near a vector: the way to see that an embedding means something without reading what it stands for."""

from dataclasses import dataclass
from uuid import UUID

from memory.models import Corpus, Embedding
from memory.search.dense import nearest_rows
from memory.search.scope import Scope

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
    """The nearest rows of the same person, corpus and model, other parts of the same text left out.

    The person's rows are scanned as for any search of theirs; no vector leaves the database.
    """
    if embedding.embedded_at is None:
        return []
    own = Embedding.objects.for_user(embedding.user).filter(
        corpus=embedding.corpus,
        source_id=embedding.source_id,
        chunk_index=embedding.chunk_index,
        model=embedding.model_id,
    )
    scope = Scope(embedding.user, (Corpus(embedding.corpus),))
    limit = LIMIT + own.count()
    distances = dict(nearest_rows(scope, model=embedding.model.name, row=embedding.pk, limit=limit))
    others = Embedding.objects.filter(pk__in=distances).exclude(pk__in=own.values("pk"))
    rows = others.values_list("pk", "source_id", "chunk_index", "part")
    neighbours = [Neighbour(*row, distance=distances[row[0]]) for row in rows]
    return sorted(neighbours, key=lambda neighbour: (neighbour.distance, neighbour.pk))[:LIMIT]
