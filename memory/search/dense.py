"""The dense leg: the nearest parts of all; for a fused search also the distances of every other candidate."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection
from pgvector import HalfVector

from memory.embedders.base import Vector
from memory.search.scope import Scope

# Any so many parts of the person's show how far away the unrelated lie; the nearest, which are fetched, would not.
SAMPLE = 200

# The scan reads nothing but the covering index.
_NEAR = """
WITH model AS MATERIALIZED (
    SELECT id FROM embedding_models WHERE name = %(model)s
), near AS MATERIALIZED (
    SELECT source_id, chunk_index, vector <=> %(vector)s::halfvec AS distance
      FROM embeddings
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND vector IS NOT NULL
       AND model_id = (SELECT id FROM model) {dated}
     ORDER BY distance, source_id, chunk_index
     LIMIT %(nearest)s
)
"""
_DATED = "AND said_at >= %(since)s AND said_at < %(until)s"

_NEAREST = _NEAR + "TABLE near ORDER BY distance, source_id, chunk_index"

# After the scan all parts of the few texts that are candidates.
_MEASURED = (
    _NEAR  # noqa: S608  # two constants
    + """
, candidate AS MATERIALIZED (
    SELECT source_id, chunk_index FROM near
     UNION
    SELECT * FROM unnest(%(sources)s::uuid[], %(chunks)s::int[])
), sample AS (
    SELECT vector <=> %(vector)s::halfvec AS distance
      FROM embeddings
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND vector IS NOT NULL
       AND model_id = (SELECT id FROM model)
     LIMIT %(sample)s
)
SELECT corpus, source_id, chunk_index, said_at, distance, said_distance, said_length + answered_length,
       (SELECT percentile_cont(0.7) WITHIN GROUP (ORDER BY distance) FROM sample)
  FROM candidate
  JOIN indexed_texts AS text USING (source_id, chunk_index)
 CROSS JOIN LATERAL (
    SELECT min(distance) AS distance, min(distance) FILTER (WHERE part = 0) AS said_distance
      FROM (SELECT part, vector <=> %(vector)s::halfvec AS distance
              FROM embeddings AS e
             WHERE e.user_id = %(user_id)s AND e.corpus = text.corpus AND vector IS NOT NULL
               AND e.source_id = candidate.source_id AND e.chunk_index = candidate.chunk_index
               AND model_id = (SELECT id FROM model)
            OFFSET 0) AS each  -- no distance is computed twice
       ) AS measured
 WHERE text.user_id = %(user_id)s AND text.corpus = ANY(%(corpora)s)
"""
)


@dataclass(frozen=True, slots=True)
class Measured:
    """A candidate's distances: of its nearest part and of its first one, where the person speaks; None without vector.

    `words` is its length. `unrelated` is the distance that three in ten of the person's parts are beyond.
    """

    corpus: str
    source_id: UUID
    chunk_index: int
    said_at: datetime
    distance: float | None
    said_distance: float | None
    words: int
    unrelated: float | None


def nearest_parts(scope: Scope, *, model: str, vector: Vector, limit: int) -> list[tuple[UUID, int, float]]:
    """The `limit` nearest parts in `scope` as (source_id, chunk_index, cosine distance), the nearest first; exact."""
    return _fetch(_NEAREST, scope, model=model, vector=vector, nearest=limit)


def measured(
    scope: Scope, *, model: str, vector: Vector, nearest: int, also: Collection[tuple[UUID, int]]
) -> list[Measured]:
    """The texts of the `nearest` parts and the texts in `also`, in no order; all of them in `scope`."""
    rows = _fetch(
        _MEASURED,
        scope,
        model=model,
        vector=vector,
        nearest=nearest,
        sources=[source_id for source_id, _ in also],
        chunks=[chunk_index for _, chunk_index in also],
        sample=SAMPLE,
    )
    return [Measured(*row) for row in rows]


def _fetch(
    statement: str, scope: Scope, *, model: str, vector: Vector, nearest: int, **more: Any
) -> list[tuple[Any, ...]]:
    parameters = {
        **scope.parameters(),
        "model": model,
        "vector": HalfVector(vector).to_text(),
        "nearest": nearest,
        **more,
    }
    with connection.cursor() as cursor:
        cursor.execute(statement.format(dated=_DATED if scope.is_dated else ""), parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
    return rows
