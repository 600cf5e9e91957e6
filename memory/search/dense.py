"""The dense leg: the nearest parts of all; for a fused search also the distances of every other candidate."""

from collections.abc import Collection
from typing import Any, NamedTuple
from uuid import UUID

from intake.prepared import fetch, plain_array
from memory.embedders.base import Vector
from memory.halves import Halves
from memory.models.blocks import SLOTS
from memory.search.keys import PlainKey
from memory.search.scope import Scope

# Any so many parts of the person's show how far away the unrelated lie; the nearest, which are fetched, would not.
SAMPLE = 200
# The distance that three in ten of them are beyond.
UNRELATED = 0.7

_SPARE_BLOCKS = 8
_SLOTS = range(SLOTS)
_KEYS = ", ".join(f"p{slot}" for slot in _SLOTS)
_OF_MODEL = "(SELECT id FROM embedding_models WHERE name = %(model)s)"
_MINE = f"user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND model_id = {_OF_MODEL}"
_LOOSE = f"{_MINE} AND vector IS NOT NULL AND block_id IS NULL"
_DATED = "AND said_at >= %(since)s AND said_at < %(until)s"
# What was said at another time counts as an empty slot.
_IN_TIME = "CASE WHEN t{slot} >= %(since)s AND t{slot} < %(until)s THEN v{slot} END"


def _each(operator: str, *, dated: bool = False) -> str:
    """The vector in each slot of a block, beside `q`."""
    vectors = [_IN_TIME.format(slot=slot) if dated else f"v{slot}" for slot in _SLOTS]
    return ", ".join(f"{vector} {operator} q" for vector in vectors)


def _near(vector: str, *, dated: bool = False) -> str:
    """CTEs `asked`, where `q` is the vector to be near to, and `near`: the keys and distances of the nearest parts.

    The nearest parts are in the blocks whose own nearest are, so as many blocks as parts are wanted do. Nothing but
    their keys leaves the scan: to hand on a block's ten keys and distances would take longer than to measure these few
    again. And as vectors have length 1, but for what halves round off, their inner product says which blocks those are
    (some more than needed, for what it rounds differently); it takes less than the cosine, by which parts are ranked.
    """
    return f"""
WITH asked AS NOT MATERIALIZED (  -- so that it is a constant everywhere
    SELECT {vector} AS q
), near_block AS MATERIALIZED (
    SELECT id
      FROM asked, embedding_blocks
     WHERE {_MINE}
     ORDER BY least({_each("<#>", dated=dated)})
     LIMIT %(nearest)s + {_SPARE_BLOCKS}
), near AS MATERIALIZED (
    SELECT id, distance
      FROM (SELECT unnest(ARRAY[{_KEYS}]) AS id, unnest(ARRAY[{_each("<=>", dated=dated)}]) AS distance
              FROM asked, near_block JOIN embedding_blocks USING (id)) AS part
     WHERE distance IS NOT NULL
     UNION ALL
    SELECT id, vector <=> q
      FROM asked, embeddings
     WHERE {_LOOSE} {_DATED if dated else ""}
     ORDER BY distance, id
     LIMIT %(nearest)s
)
"""


_NEAR = {dated: _near("%(vector)s::halfvec", dated=dated) for dated in (False, True)}

# Everybody else's vectors stay in the database.
_NEAR_ROW = _near("(SELECT vector FROM embeddings WHERE id = %(row)s)") + "SELECT id, distance FROM near"

# How many texts have a part without a vector. The statement that scans counts them, too: what is embedded
# meanwhile is either found or counted.
_COUNT_WAITING = f"""
SELECT count(DISTINCT (source_id, chunk_index)) AS waiting
  FROM embeddings
 WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND vector IS NULL AND model_id = {_OF_MODEL}
"""

# A row at least, which says how many wait.
_NEAREST = f"""
SELECT waiting, source_id, chunk_index, distance
  FROM ({_COUNT_WAITING}) AS counted
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
      FROM (SELECT unnest(ARRAY[{_each("<=>")}]) AS distance
              FROM asked, (SELECT * FROM embedding_blocks WHERE {_MINE} LIMIT %(sample)s / {SLOTS}) AS block
             UNION ALL
            SELECT vector <=> q FROM asked, embeddings WHERE {_LOOSE}
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
  FROM ({_COUNT_WAITING}) AS counted
  LEFT JOIN (
    SELECT source_id::text, chunk_index, corpus, extract(epoch FROM said_at)::float8,
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
                   AND model_id = {_OF_MODEL} AND (part = 0 OR candidate.distance IS NULL)
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
    rows = _scanned(_NEAREST, scope, model=model, vector=vector, nearest=limit)
    return Nearest([row[1:] for row in rows if row[1] is not None], waiting=rows[0][0])


def measured(scope: Scope, *, model: str, vector: Vector, nearest: int, also: Collection[PlainKey]) -> Measurements:
    """The texts of the `nearest` parts and the texts in `also`; all of them in `scope`."""
    rows = _scanned(
        _MEASURED,
        scope,
        model=model,
        vector=vector,
        nearest=nearest,
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
    ((count,),) = fetch(_COUNT_WAITING, {**scope.parameters(), "model": model})
    return int(count)


def _scanned(
    statement: str, scope: Scope, *, model: str, vector: Vector, nearest: int, **more: Any
) -> list[tuple[Any, ...]]:
    parameters = {
        **scope.parameters(),
        "model": model,
        "vector": Halves(vector),
        "nearest": nearest,
        "sample": SAMPLE,
        **more,
    }
    return fetch(_NEAR[scope.is_dated] + statement, parameters)
