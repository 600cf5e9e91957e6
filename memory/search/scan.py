"""The scan of a person's vectors: the beginning of every statement that asks what lies near, and how it is asked."""

from typing import Any

from core.db.statements import Rows, fetch
from memory.embedders.base import Vector
from memory.halves import Halves
from memory.models.blocks import SLOTS
from memory.search.scope import Scope

_SPARE_BLOCKS = 8
_SLOTS = range(SLOTS)
_KEYS = ", ".join(f"p{slot}" for slot in _SLOTS)
OF_MODEL = "(SELECT id FROM embedding_models WHERE name = %(model)s)"
MINE = f"user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND model_id = {OF_MODEL}"
LOOSE = f"{MINE} AND vector IS NOT NULL AND block_id IS NULL"
_DATED = "AND said_at >= %(since)s AND said_at < %(until)s"
# What was said at another time counts as an empty slot.
_IN_TIME = "CASE WHEN t{slot} >= %(since)s AND t{slot} < %(until)s THEN v{slot} END"


def each(operator: str, *, dated: bool = False) -> str:
    """The vector in each slot of a block, beside `q`."""
    vectors = [_IN_TIME.format(slot=slot) if dated else f"v{slot}" for slot in _SLOTS]
    return ", ".join(f"{vector} {operator} q" for vector in vectors)


def near(vector: str, *, dated: bool = False) -> str:
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
     WHERE {MINE}
     ORDER BY least({each("<#>", dated=dated)})
     LIMIT %(nearest)s + {_SPARE_BLOCKS}
), near AS MATERIALIZED (
    SELECT id, distance
      FROM (SELECT unnest(ARRAY[{_KEYS}]) AS id, unnest(ARRAY[{each("<=>", dated=dated)}]) AS distance
              FROM asked, near_block JOIN embedding_blocks USING (id)) AS part
     WHERE distance IS NOT NULL
     UNION ALL
    SELECT id, vector <=> q
      FROM asked, embeddings
     WHERE {LOOSE} {_DATED if dated else ""}
     ORDER BY distance, id
     LIMIT %(nearest)s
)
"""


_NEAR = {dated: near("%(vector)s::halfvec", dated=dated) for dated in (False, True)}

# How many texts have a part without a vector. The statement that scans counts them, too: what is embedded
# meanwhile is either found or counted.
COUNT_WAITING = f"""
SELECT count(DISTINCT (source_id, chunk_index)) AS waiting
  FROM embeddings
 WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND vector IS NULL AND model_id = {OF_MODEL}
"""


def scanned(statement: str, scope: Scope, *, model: str, vector: Vector, nearest: int, **more: object) -> Rows:
    """The rows of a statement that goes on from `near`, the `nearest` parts in `scope`; `more`: its own parameters."""
    parameters: dict[str, Any] = {
        **scope.parameters(),
        "model": model,
        "vector": Halves(vector),
        "nearest": nearest,
        **more,
    }
    return fetch(_NEAR[scope.is_dated] + statement, parameters)
