"""The turns that are nearest in meaning, with what is shown of them, in one statement."""

from typing import NamedTuple
from uuid import UUID

from memory.chunking import MAX_PARTS
from memory.embedders.base import Vector
from memory.search.nearest import widening
from memory.search.scan import COUNT_WAITING, scanned
from memory.search.scope import Scope

# Each turn is as near as its nearest part. A row at least, which says how many wait.
_TURNS = f"""
, nearest AS MATERIALIZED (
    SELECT source_id, chunk_index, min(distance) AS distance
      FROM near
     CROSS JOIN LATERAL (SELECT source_id, chunk_index FROM embeddings WHERE id = near.id OFFSET 0) AS part
     GROUP BY source_id, chunk_index
     ORDER BY distance, source_id, chunk_index
     LIMIT %(turns)s
)
SELECT waiting, (SELECT count(*) FROM near), turn.*
  FROM ({COUNT_WAITING}) AS counted
  LEFT JOIN (SELECT source_id, chunk_index, distance, beginning
               FROM nearest
              CROSS JOIN LATERAL (
                SELECT left(user_message, %(length)s) AS beginning
                  FROM intake_conversation_turns
                 WHERE user_id = %(user_id)s AND conversation_id = source_id AND turn_number = chunk_index
                OFFSET 0) AS its) AS turn
    ON true
 ORDER BY distance, source_id, chunk_index
"""


class NearTurn(NamedTuple):
    """`distance` is the cosine distance of its nearest part, `beginning` that of what the person said."""

    conversation_id: UUID
    turn_number: int
    distance: float
    beginning: str


class NearTurns(NamedTuple):
    """Turns, the nearest first; and how many of the person's, of whatever date, have a part without a vector."""

    turns: list[NearTurn]
    waiting: int


def nearest_turns(scope: Scope, *, model: str, vector: Vector, limit: int, length: int) -> NearTurns:
    """The `limit` nearest turns in `scope`, whose corpus is the chat's; of each the first `length` characters."""
    for parts in widening(limit, most_parts=MAX_PARTS):
        rows = scanned(_TURNS, scope, model=model, vector=vector, nearest=parts, turns=limit, length=length)
        waiting, found, *_ = rows[0]
        turns = [NearTurn(*row[2:]) for row in rows if row[2] is not None]
        if len(turns) == limit or found < parts:
            break
    return NearTurns(turns, waiting)
