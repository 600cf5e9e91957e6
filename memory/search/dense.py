"""The dense leg: the nearest parts of all; for a fused search also the distances of every other candidate."""

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from core.db.statements import fetch, plain_array
from memory.embedders.base import Vector
from memory.models.blocks import SLOTS
from memory.search.keys import PlainKey
from memory.search.scan import COUNT_WAITING, LOOSE, MINE, OF_MODEL, each, near, scanned
from memory.search.scope import Scope

# Any so many parts of the person's show how far away the unrelated lie; the nearest, which are fetched, would not.
SAMPLE = 200
# The distance that three in ten of them are beyond.
UNRELATED = 0.7

# Everybody else's vectors stay in the database.
_NEAR_ROW = near("(SELECT vector FROM embeddings WHERE id = %(row)s)") + "SELECT id, distance FROM near"

# A row at least, which says how many wait.
_NEAREST = f"""
SELECT waiting, source_id, chunk_index, distance
  FROM ({COUNT_WAITING}) AS counted
  LEFT JOIN (near
             CROSS JOIN LATERAL (SELECT source_id, chunk_index FROM embeddings WHERE id = near.id OFFSET 0) AS part)
    ON true
 ORDER BY distance, source_id, chunk_index
"""

# How near a text's nearest part is, the scan has told of those that it found; so what is looked up is the first part of
# these, and every part of the others.
_MEASURED = f"""
, sample AS MATERIALIZED (
    SELECT percentile_cont({UNRELATED}) WITHIN GROUP (ORDER BY distance) AS unrelated
      FROM (SELECT unnest(ARRAY[{each("<=>")}]) AS distance
              FROM asked, (SELECT * FROM embedding_blocks WHERE {MINE} LIMIT %(sample)s / {SLOTS}) AS block
             UNION ALL
            SELECT vector <=> q FROM asked, embeddings WHERE {LOOSE}
             LIMIT %(sample)s) AS any_parts
), found AS MATERIALIZED (
    SELECT corpus, source_id, chunk_index, min(distance) AS distance,
           min(distance) FILTER (WHERE part = 0) AS said_distance
      FROM near
     CROSS JOIN LATERAL (SELECT corpus, source_id, chunk_index, part FROM embeddings WHERE id = near.id OFFSET 0) AS row
     GROUP BY corpus, source_id, chunk_index
), candidate AS MATERIALIZED (
    SELECT source_id, chunk_index, distance, said_distance FROM found
     UNION ALL
    SELECT source_id, chunk_index, NULL, NULL
      FROM unnest(%(sources)s::uuid[], %(chunks)s::int[]) AS also(source_id, chunk_index)
     WHERE (source_id, chunk_index) NOT IN (SELECT source_id, chunk_index FROM found)
)
SELECT waiting, (SELECT unrelated FROM sample), text.*
  FROM ({COUNT_WAITING}) AS counted
  LEFT JOIN (
    SELECT source_id::text, chunk_index, corpus, date_part('epoch', said_at),
           coalesce(candidate.distance, measured.distance), coalesce(candidate.said_distance, measured.said_distance),
           said_length + answered_length
      FROM candidate
      JOIN indexed_texts AS text USING (source_id, chunk_index)
     CROSS JOIN LATERAL (
        SELECT min(each.distance) AS distance, min(each.distance) FILTER (WHERE part = 0) AS said_distance
          FROM (SELECT part, vector <=> q AS distance
                  FROM asked, embeddings AS e
                 WHERE candidate.said_distance IS NULL
                   AND e.user_id = %(user_id)s AND e.corpus = text.corpus AND vector IS NOT NULL
                   AND e.source_id = candidate.source_id AND e.chunk_index = candidate.chunk_index
                   AND model_id = {OF_MODEL} AND (part = 0 OR candidate.distance IS NULL)
                OFFSET 0) AS each  -- no distance is computed twice
           ) AS measured
     WHERE text.user_id = %(user_id)s AND text.corpus = ANY(%(corpora)s)) AS text
    ON true
"""


class Nearest(NamedTuple):
    """Parts as (source_id, chunk_index, cosine distance), the nearest first.

    `waiting`: how many texts in the scope's corpora, of whatever date, have a part without a vector.
    """

    parts: list[tuple[UUID, int, float]]
    waiting: int


class Measured(NamedTuple):
    """A candidate's distances: of its nearest part and of its first one, where the person speaks; None without vector.

    `said_at` is in seconds since 1970, `words` the text's length.
    """

    key: PlainKey
    corpus: str
    said_at: float
    distance: float | None
    said_distance: float | None
    words: int


class Measurements(NamedTuple):
    """Texts in no order.

    `unrelated` is the distance that three in ten of the person's parts are beyond, None if there are none; `waiting` is
    as in `Nearest`.
    """

    texts: list[Measured]
    unrelated: float | None
    waiting: int


def nearest_parts(scope: Scope, *, model: str, vector: Vector, limit: int) -> Nearest:
    """The `limit` nearest parts in `scope`; exact."""
    rows = scanned(_NEAREST, scope, model=model, vector=vector, nearest=limit)
    return Nearest([row[1:] for row in rows if row[1] is not None], waiting=rows[0][0])


def measured(scope: Scope, *, model: str, vector: Vector, nearest: int, also: Collection[PlainKey]) -> Measurements:
    """The texts of the `nearest` parts and the texts in `also`; all of them in `scope`."""
    rows = scanned(
        _MEASURED,
        scope,
        model=model,
        vector=vector,
        nearest=nearest,
        sample=SAMPLE,
        sources=plain_array(source for source, _ in also),
        chunks=plain_array(place for _, place in also),
    )
    waiting, unrelated, *_ = rows[0]
    texts = [Measured((source, place), *rest) for _, _, source, place, *rest in rows if source is not None]
    return Measurements(texts, unrelated, waiting)


def nearest_rows(scope: Scope, *, model: str, row: int, limit: int) -> list[tuple[int, float]]:
    """The keys of the `limit` nearest parts in `scope` to what stands in a row, itself among them, with distances."""
    return fetch(_NEAR_ROW, {**scope.parameters(), "model": model, "row": row, "nearest": limit})


def count_waiting(scope: Scope, *, model: str) -> int:
    """How many texts of the person's in the corpora, of whatever date, have a part without a vector."""
    ((count,),) = fetch(COUNT_WAITING, {**scope.parameters(), "model": model})
    return int(count)
