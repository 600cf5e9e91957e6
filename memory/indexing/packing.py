"""Puts vectors side by side: as soon as a person has enough that are in no block, they become one.

What is left over, fewer than a block takes, is scanned row by row, and so is what another worker is packing just now.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from django.db import connection, transaction
from django.utils import timezone

from memory.models import Corpus, Embedding, EmbeddingModel
from memory.models.blocks import SLOTS, slots_for

_COLUMNS = ", ".join(f"{prefix}{slot}" for prefix in "ptv" for slot in range(SLOTS))
_KEYS = ", ".join(f"p{slot}" for slot in range(SLOTS))
_VALUES = ", ".join(
    f"(array_agg({value}) FILTER (WHERE slot = {slot}))[1]"
    for value in ("id", "said_at", "vector")
    for slot in range(SLOTS)
)

# Rows that somebody is deleting, or another worker packing, are left to them.
_PACK = f"""
WITH loose AS MATERIALIZED (
    SELECT id, said_at, vector
      FROM embeddings
     WHERE user_id = %(user_id)s AND corpus = %(corpus)s AND model_id = %(model_id)s
       AND vector IS NOT NULL AND block_id IS NULL
     ORDER BY id
       FOR NO KEY UPDATE SKIP LOCKED
), numbered AS (
    SELECT *, (row_number() OVER by_id - 1) / %(slots)s AS block, (row_number() OVER by_id - 1) %% %(slots)s AS slot
      FROM loose
    WINDOW by_id AS (ORDER BY id)
), packed AS (
    INSERT INTO embedding_blocks (user_id, corpus, model_id, {_COLUMNS})
    SELECT %(user_id)s, %(corpus)s, %(model_id)s, {_VALUES}
      FROM numbered
     GROUP BY block
    HAVING count(*) = %(slots)s
    RETURNING id, ARRAY[{_KEYS}] AS parts
)
UPDATE embeddings SET block_id = packed.id
  FROM packed CROSS JOIN LATERAL unnest(parts) AS part(id)
 WHERE embeddings.id = part.id
"""  # noqa: S608

# Everybody's, for when more was left loose than a person's next turn would see to.
_WHOSE = """
SELECT user_id, corpus, model_id
  FROM embeddings
 WHERE vector IS NOT NULL AND block_id IS NULL
 GROUP BY user_id, corpus, model_id
HAVING count(*) > 1
"""


class Shelf(NamedTuple):
    """Whose vectors may stand in one block: they are compared with the same queries, and seen by the same person."""

    user_id: int
    corpus: Corpus
    model_id: int


def pack(rows: Iterable[Embedding]) -> None:
    """Pack what has gathered where these rows belong. In the transaction that fills them, nothing is left for later."""
    _pack({Shelf(row.user_id, Corpus(row.corpus), row.model_id) for row in rows})


def pack_everything(*, until: datetime | None = None) -> int:
    """Pack what has gathered anywhere, or until the time is up; returns how many vectors that were."""
    with connection.cursor() as cursor:
        cursor.execute(_WHOSE)
        shelves = {Shelf(*row) for row in cursor.fetchall()}
    return _pack(shelves, until=until)


def _pack(shelves: Iterable[Shelf], *, until: datetime | None = None) -> int:
    # In one order, so that two workers wait for each other and not in a circle.
    shelves = sorted(shelves)
    slots = {
        pk: slots_for(dimensions)
        for pk, dimensions in EmbeddingModel.objects.filter(pk__in={shelf.model_id for shelf in shelves}).values_list(
            "pk", "dimensions"
        )
    }
    packed = 0
    for shelf in shelves:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_PACK, {**shelf._asdict(), "slots": slots[shelf.model_id]})
            packed += cursor.rowcount
        if until is not None and timezone.now() >= until:
            break
    return packed
