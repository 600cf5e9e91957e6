"""Puts vectors side by side: as soon as a person has enough that are in no block, they become one.

What is left over, fewer than a block takes, is scanned row by row, and so is what another worker is packing just now.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connection, transaction
from django.utils import timezone

from memory.embedders.base import Matrix
from memory.halves import Halves
from memory.models import Corpus, Embedding, EmbeddingModel
from memory.models.blocks import SLOTS, slots_for

_COLUMNS = ", ".join(f"{prefix}{slot}" for prefix in "ptv" for slot in range(SLOTS))
_KEYS = ", ".join(f"p{slot}" for slot in range(SLOTS))
_VALUES = ", ".join(
    f"(array_agg({value}) FILTER (WHERE slot = {slot}))[1]"
    for value in ("id", "said_at", "vector")
    for slot in range(SLOTS)
)

# Of `gathered`, whose every row has a shelf and a place on it, counted from 0: a block for each full row of places.
_PACKED = f"""
packed AS (
    INSERT INTO embedding_blocks (user_id, corpus, model_id, {_COLUMNS})
    SELECT user_id, corpus, model_id, {_VALUES}
      FROM (SELECT *, place / %(slots)s AS block, place %% %(slots)s AS slot FROM gathered) AS numbered
     GROUP BY user_id, corpus, model_id, block
    HAVING count(*) = %(slots)s
     ORDER BY user_id, corpus, model_id, block
    RETURNING id, ARRAY[{_KEYS}] AS parts
), part AS (
    SELECT packed.id AS block_id, unnest(parts) AS id FROM packed
)
"""  # noqa: S608

# Rows that somebody is deleting, or another worker packing, are left to them.
_PACK = f"""
WITH loose AS MATERIALIZED (
    SELECT id, user_id, corpus, model_id, said_at, vector
      FROM embeddings
     WHERE user_id = %(user_id)s AND corpus = %(corpus)s AND model_id = %(model_id)s
       AND vector IS NOT NULL AND block_id IS NULL
     ORDER BY id
       FOR NO KEY UPDATE SKIP LOCKED
), gathered AS (
    SELECT *, row_number() OVER (ORDER BY id) - 1 AS place FROM loose
), {_PACKED}
UPDATE embeddings SET block_id = part.block_id FROM part WHERE embeddings.id = part.id
"""  # noqa: S608

# What is stored, and what lay loose beside it, in one go: so each row is written once, and with it its entries in half
# a dozen indexes. A row whose text has changed keeps waiting, and one that has a vector by now keeps that.
_STORE = f"""
WITH made AS MATERIALIZED (
    SELECT id, content_hash, text::halfvec AS vector
      FROM unnest(%(ids)s::bigint[], %(hashes)s::bytea[], %(vectors)s::text[]) AS each(id, content_hash, text)
), stored AS MATERIALIZED (
    SELECT id, user_id, corpus, model_id, said_at, made.vector
      FROM made JOIN embeddings AS row USING (id, content_hash)
     WHERE row.vector IS NULL
     ORDER BY id
       FOR NO KEY UPDATE OF row
), loose AS MATERIALIZED (
    SELECT id, user_id, corpus, model_id, said_at, vector
      FROM (SELECT DISTINCT user_id, corpus, model_id FROM stored) AS shelf
      JOIN embeddings AS row USING (user_id, corpus, model_id)
     WHERE vector IS NOT NULL AND block_id IS NULL
     ORDER BY id
       FOR NO KEY UPDATE OF row SKIP LOCKED
), gathered AS MATERIALIZED (
    SELECT *, row_number() OVER (PARTITION BY user_id, corpus, model_id ORDER BY id) - 1 AS place
      FROM (SELECT * FROM stored UNION ALL SELECT * FROM loose) AS each
), {_PACKED}, written AS (
    UPDATE embeddings AS row
       SET vector = stored.vector, embedded_at = %(now)s, last_error = '', block_id = part.block_id
      FROM stored LEFT JOIN part USING (id)
     WHERE row.id = stored.id
)
UPDATE embeddings SET block_id = part.block_id FROM part JOIN loose USING (id) WHERE embeddings.id = part.id
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


def store(rows: Sequence[Embedding], vectors: Matrix, *, now: datetime) -> None:
    """Store a batch's vectors, of one model, and pack what has gathered where they belong."""
    parameters: dict[str, Any] = {
        "ids": [row.pk for row in rows],
        "hashes": [bytes(row.content_hash) for row in rows],
        "vectors": [str(Halves(vector)) for vector in vectors],
        "now": now,
        "slots": slots_for(vectors.shape[1]),
    }
    with connection.cursor() as cursor:
        cursor.execute(_STORE, parameters)


def pack_everything(*, until: datetime | None = None) -> int:
    """Pack what has gathered anywhere, or until the time is up; returns how many vectors that were."""
    with connection.cursor() as cursor:
        cursor.execute(_WHOSE)
        # In one order, so that two workers wait for each other and not in a circle.
        shelves = sorted(Shelf(*row) for row in cursor.fetchall())
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
