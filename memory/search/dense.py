"""The dense leg: the nearest parts of all; for a fused search also the distances of every other candidate."""

from collections.abc import Collection
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from pgvector import HalfVector

from memory.embedders.base import Vector
from memory.search.keys import PlainKey
from memory.search.scope import Scope

# Any so many parts of the person's show how far away the unrelated lie; the nearest, which are fetched, would not.
SAMPLE = 200
# The distance that three in ten of them are beyond.
UNRELATED = 0.7
# Sorting costs a part about as much as its distance does, so what is farther than this share of the sample is not
# sorted. Where too few are nearer, the scan is made again without it, and so is exact whatever the sample was like.
NEARER = 0.25

_OF_MODEL = "(SELECT id FROM embedding_models WHERE name = %(model)s)"
_MINE = f"user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND vector IS NOT NULL AND model_id = {_OF_MODEL}"

# Few parts are all of the person's, and none of them is cut off.
_SAMPLE = f"""
WITH sample AS MATERIALIZED (
    SELECT percentile_cont({UNRELATED}) WITHIN GROUP (ORDER BY distance) AS unrelated,
           CASE WHEN count(*) < %(sample)s THEN 'infinity'
                ELSE percentile_cont({NEARER}) WITHIN GROUP (ORDER BY distance) END AS cut
      FROM (SELECT vector <=> %(vector)s::halfvec AS distance
              FROM embeddings
             WHERE {_MINE}
             LIMIT %(sample)s) AS any_parts
)
"""

# The scan reads nothing but the covering index.
_NEAR = (
    _SAMPLE
    + f"""
, near AS MATERIALIZED (
    SELECT source_id, chunk_index, vector <=> %(vector)s::halfvec AS distance
      FROM embeddings
     WHERE {_MINE} {{narrowed}}
     ORDER BY distance, source_id, chunk_index
     LIMIT %(nearest)s
)
"""
)
_CUT = "AND vector <=> %(vector)s::halfvec <= (SELECT cut FROM sample)"
_DATED = "AND said_at >= %(since)s AND said_at < %(until)s"

_IS_SHORT = "(SELECT count(*) FROM near) < %(nearest)s AND (SELECT cut FROM sample) < 'infinity'"

_NEAREST = (
    _NEAR + f"SELECT source_id, chunk_index, distance, {_IS_SHORT} FROM near ORDER BY distance, source_id, chunk_index"
)

# After the scan all parts of the few texts that are candidates.
_MEASURED = (
    _NEAR
    + f"""
, candidate AS MATERIALIZED (
    SELECT source_id, chunk_index FROM near
     UNION
    SELECT * FROM unnest(%(sources)s::uuid[], %(chunks)s::int[])
)
SELECT corpus, source_id::text, chunk_index, extract(epoch FROM said_at)::float8, distance, said_distance,
       said_length + answered_length, (SELECT unrelated FROM sample), {_IS_SHORT}
  FROM candidate
  JOIN indexed_texts AS text USING (source_id, chunk_index)
 CROSS JOIN LATERAL (
    SELECT min(distance) AS distance, min(distance) FILTER (WHERE part = 0) AS said_distance
      FROM (SELECT part, vector <=> %(vector)s::halfvec AS distance
              FROM embeddings AS e
             WHERE e.user_id = %(user_id)s AND e.corpus = text.corpus AND vector IS NOT NULL
               AND e.source_id = candidate.source_id AND e.chunk_index = candidate.chunk_index
               AND model_id = {_OF_MODEL}
            OFFSET 0) AS each  -- no distance is computed twice
       ) AS measured
 WHERE text.user_id = %(user_id)s AND text.corpus = ANY(%(corpora)s)
"""
)

_WAITING = f"""
SELECT count(DISTINCT (source_id, chunk_index))
  FROM embeddings
 WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND vector IS NULL AND model_id = {_OF_MODEL}
"""


class Measured(NamedTuple):
    """A candidate's distances: of its nearest part and of its first one, where the person speaks; None without vector.

    `said_at` is in seconds since 1970, `words` the text's length. `unrelated` is the distance that three in ten of the
    person's parts are beyond, None if there are none.
    """

    corpus: str
    source_id: str
    chunk_index: int
    said_at: float
    distance: float | None
    said_distance: float | None
    words: int
    unrelated: float | None

    @property
    def key(self) -> PlainKey:
        return (self.source_id, self.chunk_index)


def nearest_parts(scope: Scope, *, model: str, vector: Vector, limit: int) -> list[tuple[UUID, int, float]]:
    """The `limit` nearest parts in `scope` as (source_id, chunk_index, cosine distance), the nearest first; exact."""
    return _scanned(_NEAREST, scope, model=model, vector=vector, nearest=limit)


def measured(scope: Scope, *, model: str, vector: Vector, nearest: int, also: Collection[PlainKey]) -> list[Measured]:
    """The texts of the `nearest` parts and the texts in `also`, in no order; all of them in `scope`."""
    rows = _scanned(
        _MEASURED,
        scope,
        model=model,
        vector=vector,
        nearest=nearest,
        sources=[source for source, _ in also],
        chunks=[place for _, place in also],
    )
    return [Measured._make(row) for row in rows]


def count_waiting(scope: Scope, *, model: str) -> int:
    """How many texts of the person's in the corpora, of whatever date, have a part without a vector."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, {**scope.parameters(), "model": model})
        (count,) = cursor.fetchone()
    return int(count)


def _scanned(
    statement: str, scope: Scope, *, model: str, vector: Vector, nearest: int, **more: Any
) -> list[tuple[Any, ...]]:
    """The statement's rows; once more without the cut if that left too little, which the last column says."""
    parameters = {
        **scope.parameters(),
        "model": model,
        "vector": HalfVector(vector).to_text(),
        "nearest": nearest,
        "sample": SAMPLE,
        **more,
    }
    with connection.cursor() as cursor:
        # The sample is of any time.
        cursor.execute(statement.format(narrowed=_DATED if scope.is_dated else _CUT), parameters)
        rows = cursor.fetchall()
        if not scope.is_dated and rows and rows[0][-1]:
            cursor.execute(statement.format(narrowed=""), parameters)
            rows = cursor.fetchall()
    return [row[:-1] for row in rows]
