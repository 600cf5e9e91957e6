"""The vectors of each user's texts: stored by a worker, packed into blocks, and scanned exactly by every search.

`store` and `pack_all` write, `nearest` and `distances` read, `delete` removes. Most of a scan's time is for rows and
not for distances. So a row of `embedding_blocks` holds ten vectors (`v0` to `v9`, with the keys of their rows in
`embeddings` and the times of their texts), and the scan computes the nearest distance of each block. A vector without a
block is unpacked: it is scanned in its own row.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from django.db import connection, transaction
from pgvector.django import HalfVectorField

from core.citus.routing import by_owner
from core.isolation.acting import insert_values, is_cluster
from core.resilience import for_each, seconds_until
from memory.backends.embedders import Matrix, Vector
from memory.chunking import PassageSpan, Side
from memory.index.terms import fetch
from memory.models import Embedding, EmbeddingModel, EmbeddingQuerySet
from memory.models.documents import HIDDEN_SOURCES, Hit, Key, Scope
from memory.models.embeddings import SLOTS

# The number of a text's passages among the nearest, for most texts.
USUAL_PASSAGES = 3
# If long texts take most places with their passages, this many times as many are fetched, repeatedly.
MORE_PASSAGES = 8

Rows = list[tuple[Any, ...]]

_STORE = Path(__file__).with_name("store_vectors.sql").read_text()

# On a cluster one statement cannot write two tables: these are the steps of `_STORE` and `_PACK`.
_STORE_OF_ONE = """
WITH made AS MATERIALIZED (
    SELECT id, content_hash, text::halfvec AS vector
      FROM unnest(%(ids)s::bigint[], %(hashes)s::bytea[], %(vectors)s::text[]) AS each(id, content_hash, text)
), stored AS (
    UPDATE embeddings AS row
       SET vector = made.vector, embedded_at = %(now)s, last_error = ''
      FROM made
     WHERE row.user_id = %(user_id)s AND row.id = made.id AND row.content_hash = made.content_hash
       AND row.vector IS NULL
    RETURNING row.corpus, row.model_id, row.is_further
)
SELECT DISTINCT corpus, model_id, is_further FROM stored
"""
_UNPACKED = """
SELECT id, said_at, vector::text
  FROM embeddings
 WHERE user_id = %(user_id)s AND corpus = %(corpus)s AND model_id = %(model_id)s AND is_further = %(is_further)s
   AND vector IS NOT NULL AND block_id IS NULL
 ORDER BY id
   FOR NO KEY UPDATE SKIP LOCKED
"""
_PACKED = "UPDATE embeddings SET block_id = %(block_id)s WHERE user_id = %(user_id)s AND id = ANY(%(ids)s)"

_LOCK_BLOCKS = """
SELECT id FROM embedding_blocks WHERE user_id = %(user_id)s AND id = ANY(%(ids)s) ORDER BY id FOR UPDATE
"""
# Their other vectors become unpacked. A foreign key would do so too, but not on a cluster.
_UNPACK = "UPDATE embeddings SET block_id = NULL WHERE user_id = %(user_id)s AND block_id = ANY(%(ids)s)"
_DELETE_BLOCKS = "DELETE FROM embedding_blocks WHERE user_id = %(user_id)s AND id = ANY(%(ids)s)"

# A block is full when it is packed, and is deleted as a whole.
_WITH_GAPS = """
SELECT block.user_id, block.id
  FROM embedding_blocks AS block
  JOIN unnest(%(models)s::int[], %(slots)s::int[]) AS model(id, slots) ON model.id = block.model_id
  LEFT JOIN (SELECT user_id, block_id, count(*) AS rows
               FROM embeddings
              WHERE user_id = %(user_id)s AND block_id IS NOT NULL
              GROUP BY user_id, block_id) AS held
    ON held.user_id = block.user_id AND held.block_id = block.id
 WHERE block.user_id = %(user_id)s AND coalesce(held.rows, 0) < model.slots
"""

_UNPACKED_BY_OWNER = """
SELECT user_id, corpus, model_id, is_further
  FROM embeddings
 WHERE vector IS NOT NULL AND block_id IS NULL
 GROUP BY user_id, corpus, model_id, is_further
HAVING count(*) > 1
 ORDER BY user_id, corpus, model_id, is_further  -- so that two workers wait for each other and not in a circle
"""
_PACK = Path(__file__).with_name("pack_vectors.sql").read_text()

# The nearest passages are in the blocks whose own nearest are, so as many blocks as passages are wanted do. Only their
# keys leave the scan: to hand on ten keys and distances of each block would take longer than to measure these few
# again. And as vectors have length 1, but for what half precision rounds off, their inner product says which blocks
# those are (eight more than needed, for what it rounds differently); it takes less than the cosine, which then ranks.
#
# Of few sources (`only`) the rows are scanned one by one, because a block has vectors of several. Without some sources
# (`hidden`) as many more blocks are looked into as have vectors of those, which may be what makes them near.
#
# The statement that scans also counts the pending texts, so that what is embedded meanwhile is either found or counted.
# It gives one row at least, for that count. A chat's turns come with what is shown of them.
#
# `_scan` puts one of the two before the rest of a statement, and fills in the distances of a block's vectors.
_NEAR = """
WITH asked AS NOT MATERIALIZED (  -- so that it is a constant everywhere
    SELECT %(vector)s::halfvec AS q
), {hidden_rows}near_block AS MATERIALIZED (
    SELECT id
      FROM asked, embedding_blocks
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
       AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
     ORDER BY least({inner_products})
              + CASE WHEN is_further THEN %(further)s::float8 ELSE 0 END
     LIMIT %(passages)s + 8{more_blocks}
), near AS MATERIALIZED (
    SELECT id, distance
      FROM (SELECT unnest(ARRAY[p0, p1, p2, p3, p4, p5, p6, p7, p8, p9]) AS id,
                   unnest(ARRAY[{cosines}])
                   + CASE WHEN is_further THEN %(further)s::float8 ELSE 0 END AS distance
              FROM asked, near_block JOIN embedding_blocks USING (id)
             WHERE user_id = %(user_id)s) AS passage
     WHERE distance IS NOT NULL{not_hidden}
     UNION ALL
    SELECT id, (vector <=> q) + CASE WHEN is_further THEN %(further)s::float8 ELSE 0 END
      FROM asked, embeddings
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
       AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
       AND vector IS NOT NULL AND block_id IS NULL AND said_at >= %(since)s AND said_at < %(until)s
       AND {is_shown}
     ORDER BY distance, id
     LIMIT %(passages)s
"""
_NEAR_AMONG = """
WITH asked AS NOT MATERIALIZED (
    SELECT %(vector)s::halfvec AS q
), near AS MATERIALIZED (
    SELECT id, (vector <=> q) + CASE WHEN is_further THEN %(further)s::float8 ELSE 0 END AS distance
      FROM asked, embeddings
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND source_id = ANY(%(only)s::uuid[])
       AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
       AND vector IS NOT NULL AND said_at >= %(since)s AND said_at < %(until)s
       AND source_id NOT IN ({hidden_sources})
     ORDER BY distance, id
     LIMIT %(passages)s
"""
_HIDDEN = {
    "hidden_rows": f"""hidden_row AS MATERIALIZED (
    SELECT id, block_id
      FROM embeddings
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND source_id = ANY(ARRAY({HIDDEN_SOURCES}))
), """,  # noqa: S608 - only constants of ours
    "more_blocks": " + (SELECT count(DISTINCT block_id) FROM hidden_row)",
    "not_hidden": " AND id NOT IN (SELECT id FROM hidden_row)",
    "is_shown": "id NOT IN (SELECT id FROM hidden_row)",
}
_NOTHING_HIDDEN = dict.fromkeys(_HIDDEN, "") | {"is_shown": "true"}
_NEAREST = """), nearest AS MATERIALIZED (  -- each text is as near as its nearest passage
    SELECT corpus, source_id, chunk_index, min(said_at) AS said_at, min(distance) AS distance
      FROM near
     CROSS JOIN LATERAL (
        SELECT corpus, source_id, chunk_index, said_at
          FROM embeddings
         WHERE user_id = %(user_id)s AND id = near.id
        OFFSET 0) AS passage
     GROUP BY corpus, source_id, chunk_index
     ORDER BY distance, source_id, chunk_index
     LIMIT %(texts)s
)
SELECT pending, (SELECT count(*) FROM near), text.*
  FROM (SELECT count(DISTINCT (source_id, chunk_index)) AS pending
          FROM embeddings
         WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND vector IS NULL
           AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)) AS counted
  LEFT JOIN (SELECT source_id, chunk_index, corpus, date_part('epoch', said_at) AS at, distance, beginning, project
               FROM nearest
               LEFT JOIN LATERAL (
                 SELECT left(user_message, %(length)s) AS beginning,
                        (SELECT project
                           FROM intake_conversations
                          WHERE user_id = %(user_id)s AND id = source_id) AS project
                   FROM intake_conversation_turns
                  WHERE user_id = %(user_id)s AND conversation_id = source_id AND turn_number = chunk_index
                 OFFSET 0) AS turn
                 ON corpus = 'chat') AS text
    ON true
 ORDER BY distance, source_id, chunk_index
"""

# Scans as `_NEAREST` does, and measures every other candidate too. How near a text's nearest passage is, the scan has
# told of those that it found; so what is looked up is the first passage of these, and every passage of the others.
# A note is as long as its nearest passage, which is a line of it or all: a short line is near to many questions.
# `unrelated` is the distance that three in ten of some passages are beyond.
_DISTANCES = """), sample AS MATERIALIZED (
    SELECT percentile_cont(0.7) WITHIN GROUP (ORDER BY vector <=> q) AS unrelated
      FROM (SELECT unnest(ARRAY[v0, v1, v2, v3, v4, v5, v6, v7, v8, v9]) AS vector
              FROM (SELECT *
                      FROM embedding_blocks
                     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
                       AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s) AND NOT is_further
                     LIMIT %(sample)s / 10) AS some_blocks
             UNION ALL
            SELECT vector
              FROM embeddings
             WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
               AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
               AND vector IS NOT NULL AND block_id IS NULL AND NOT is_further
             LIMIT %(sample)s) AS some_passages, asked
), found AS MATERIALIZED (
    SELECT corpus, source_id, chunk_index, min(distance) AS distance,
           min(distance) FILTER (WHERE part = 0 OR corpus <> 'chat') AS said_distance,
           (array_agg(length ORDER BY distance) FILTER (WHERE corpus <> 'chat'))[1] AS near_length
      FROM near
     CROSS JOIN LATERAL (
        SELECT corpus, source_id, chunk_index, part, length
          FROM embeddings
         WHERE user_id = %(user_id)s AND id = near.id
        OFFSET 0) AS row
     GROUP BY corpus, source_id, chunk_index
), candidate AS MATERIALIZED (
    SELECT source_id, chunk_index, distance, said_distance, near_length FROM found
     UNION ALL
    SELECT source_id, chunk_index, NULL, NULL, NULL
      FROM unnest(%(sources)s::uuid[], %(chunks)s::int[]) AS also(source_id, chunk_index)
     WHERE (source_id, chunk_index) NOT IN (SELECT source_id, chunk_index FROM found)
)
SELECT pending, (SELECT unrelated FROM sample), (SELECT count(*) FROM near), (SELECT count(*) FROM found),
       EXISTS (SELECT FROM indexed_texts WHERE user_id = %(user_id)s AND corpus = 'attachment'), text.*
  FROM (SELECT count(DISTINCT (source_id, chunk_index)) AS pending
          FROM embeddings
         WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND vector IS NULL
           AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)) AS counted
  LEFT JOIN (
    SELECT source_id, chunk_index, corpus, date_part('epoch', said_at),
           coalesce(candidate.distance, measured.distance), coalesce(candidate.said_distance, measured.said_distance),
           least(said_length + answered_length,
                 ceil(coalesce(candidate.near_length, measured.near_length) / %(per_term)s)::int)
      FROM candidate
      JOIN indexed_texts AS text USING (source_id, chunk_index)
     CROSS JOIN LATERAL (
        SELECT min(each.distance) AS distance,
               min(each.distance) FILTER (WHERE part = 0 OR text.corpus <> 'chat') AS said_distance,
               (array_agg(each.length ORDER BY each.distance)
                FILTER (WHERE text.corpus <> 'chat' AND each.distance IS NOT NULL))[1] AS near_length
          FROM (SELECT part, length,
                       (vector <=> q) + CASE WHEN is_further THEN %(further)s::float8 ELSE 0 END AS distance
                  FROM asked, embeddings AS e
                 WHERE candidate.said_distance IS NULL
                   AND e.user_id = %(user_id)s AND e.corpus = text.corpus AND vector IS NOT NULL
                   AND e.source_id = candidate.source_id AND e.chunk_index = candidate.chunk_index
                   AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
                   AND (part = 0 OR candidate.distance IS NULL)
                OFFSET 0) AS each  -- no distance is computed twice
           ) AS measured
     WHERE text.user_id = %(user_id)s AND text.corpus = ANY(%(corpora)s)) AS text
    ON true
"""

# Row by row, for the few texts that are shown or reranked: a scan that returned this would be slower for all.
_NEAREST_PASSAGES = """
SELECT source_id, chunk_index, nearest.*
  FROM unnest(%(sources)s::uuid[], %(chunks)s::int[]) AS wanted(source_id, chunk_index)
 CROSS JOIN LATERAL (
    SELECT side, start, length, is_further
      FROM embeddings
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND source_id = wanted.source_id
       AND chunk_index = wanted.chunk_index AND vector IS NOT NULL
       AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
     ORDER BY (vector <=> %(vector)s::halfvec) + CASE WHEN is_further THEN %(further)s::float8 ELSE 0 END, part
     LIMIT 1) AS nearest
"""

_COUNT_PENDING = """
SELECT count(DISTINCT (source_id, chunk_index))
  FROM embeddings
 WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND vector IS NULL
   AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
"""

# The beginning of a text says what it is about; further passages of a long text are embedded last, and left out here.
_EMBEDDED = """
SELECT text.id
  FROM indexed_texts AS text
 CROSS JOIN LATERAL (
    SELECT
      FROM embeddings AS row
     WHERE row.user_id = text.user_id AND row.corpus = text.corpus AND row.source_id = text.source_id
       AND row.chunk_index = text.chunk_index AND vector IS NOT NULL AND NOT is_further
       AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
     LIMIT 1) AS having_one
 WHERE text.user_id = %(user_id)s AND text.corpus <> 'attachment'
 ORDER BY text.id
"""
# A lookup for each text, even if the planner has no statistics of newly filled tables.
_MEANS = """
SELECT text.id, halfvec_send(mean)
  FROM indexed_texts AS text
 CROSS JOIN LATERAL (
    SELECT avg(vector) AS mean
      FROM embeddings AS row
     WHERE row.user_id = text.user_id AND row.corpus = text.corpus AND row.source_id = text.source_id
       AND row.chunk_index = text.chunk_index AND vector IS NOT NULL AND NOT is_further
       AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
    OFFSET 0) AS of_text
 WHERE text.user_id = %(user_id)s AND text.id = ANY(%(texts)s) AND mean IS NOT NULL
 ORDER BY text.id
"""


# A block's keys: the user's, and its own.
Block = tuple[int, int]


def store(rows: Sequence[Embedding], vectors: Matrix, *, now: datetime) -> None:
    """Store a batch's vectors, of one model, and pack them with the same users' unpacked ones."""
    parameters: dict[str, Any] = {
        "ids": [row.pk for row in rows],
        "hashes": [bytes(row.content_hash) for row in rows],
        "vectors": [_halfvec(vector) for vector in vectors],
        "now": now,
        "slots": slots_for(vectors.shape[1]),
    }
    if is_cluster(connection):
        # The work of `_STORE`, each user's rows on their node: first the vectors, then the packing.
        for user_id in sorted({row.user_id for row in rows}):
            with transaction.atomic():
                for corpus, model_id, is_further in fetch(_STORE_OF_ONE, parameters | {"user_id": user_id}):
                    owner = {"user_id": user_id, "corpus": corpus, "model_id": model_id, "is_further": is_further}
                    _pack_on_node(owner, slots=parameters["slots"])
        return
    with connection.cursor() as cursor:
        cursor.execute(_STORE, parameters)


def _pack_on_node(owner: dict[str, Any], *, slots: int) -> int:
    """Does the work of `_PACK`; returns the number of packed vectors. Keys and vectors are read and written: see
    `insert_values`.

    Must run in a transaction.
    """
    rows = fetch(_UNPACKED, owner)
    full = [rows[place : place + slots] for place in range(0, len(rows) - slots + 1, slots)]
    if not full:
        return 0
    columns = [*owner, *(f"{array}{slot}" for array in "ptv" for slot in range(SLOTS))]
    none = [None] * (SLOTS - slots)
    values = [
        [*owner.values(), *(each for array in zip(*block, strict=True) for each in (*array, *none))] for block in full
    ]
    keys = insert_values("embedding_blocks", columns, values, ending="RETURNING id")
    with connection.cursor() as cursor:
        for (block_id,), block in zip(keys, full, strict=True):
            packed = {"block_id": block_id, "ids": [row[0] for row in block]}
            cursor.execute(_PACKED, owner | packed)
    return len(full) * slots


def slots_for(dimensions: int) -> int:
    """The number of vectors of this many dimensions, two bytes each, in a block: at least 1."""
    # PostgreSQL's largest row, minus a block's other data, holds vectors with a header of 8 bytes each.
    return max(1, min(SLOTS, (8_160 - 232) // (8 + 2 * dimensions)))


def pack_all(*, until: datetime | None = None) -> int:
    """Pack all unpacked vectors, or until the time is up; returns their number."""
    owners = fetch(_UNPACKED_BY_OWNER, {})
    dimensions = dict(EmbeddingModel.objects.values_list("pk", "dimensions"))
    packed: list[int] = []

    def pack(of: tuple[int, str, int, bool]) -> None:
        owner: dict[str, Any] = dict(zip(("user_id", "corpus", "model_id", "is_further"), of, strict=True))
        with transaction.atomic(), connection.cursor() as cursor:
            slots = slots_for(dimensions[owner["model_id"]])
            if is_cluster(connection):
                packed.append(_pack_on_node(owner, slots=slots))
            else:
                cursor.execute(_PACK, owner | {"slots": slots})
                packed.append(cursor.rowcount)

    for_each("memory.sweep_deleted, packing", owners, pack, seconds=seconds_until(until))
    return sum(packed)


def delete(rows: EmbeddingQuerySet) -> int:
    """Delete rows with their vectors, and the blocks that hold those; returns the number of rows."""
    deleted = 0
    with transaction.atomic():
        for some in by_owner(rows):
            unpack(some)
            deleted += some.delete()[0]
    return deleted


def unpack(rows: EmbeddingQuerySet) -> None:
    """Remove the blocks that hold vectors of these rows, which are about to lose them; a worker packs the rest again.

    Must run in a transaction. Blocks are always locked before rows, so that two deletions of neighbours cannot
    deadlock. Then the rows stay locked; the second query is for blocks that a worker has packed since the first.
    """
    for some in by_owner(rows):
        _delete_blocks(_blocks_of(some))
        _delete_blocks(_blocks_of(some.order_by("pk").select_for_update(of=("self",))))


def sweep(user_id: int) -> int:
    """Remove a user's blocks with a vector whose row was deleted without this module; returns the number of blocks.

    It reads all of the user's embeddings.

    A search never finds such a vector, because it reads the row.
    """
    dimensions = dict(EmbeddingModel.objects.values_list("pk", "dimensions"))
    parameters: dict[str, Any] = {
        "user_id": user_id,
        "models": list(dimensions),
        "slots": [slots_for(each) for each in dimensions.values()],
    }
    with transaction.atomic():
        blocks = fetch(_WITH_GAPS, parameters)
        _delete_blocks(blocks)
    return len(blocks)


def nearest(
    scope: Scope, *, model: str, vector: Vector, limit: int, further: float, snippet_length: int = 0
) -> tuple[list[Hit], int]:
    """The `limit` nearest texts in `scope`, each once, the nearest first; exact. `further`: as in `Calibration`.

    Also returns how many of the corpora, of any date, have a passage without a vector. Only turns have a snippet.

    It first fetches a few passages per text, because few texts crowd a ranking. If they do, it fetches more, until
    there are enough texts or no more passages.
    """
    parameters = {"model": model, "vector": _halfvec(vector), "further": further, "length": snippet_length}
    passages = limit * USUAL_PASSAGES
    while True:
        rows = _scan(_NEAREST, scope, parameters | {"texts": limit, "passages": passages})
        pending, found, *_ = rows[0]
        hits = [
            Hit(
                (source, place),
                corpus,
                datetime.fromtimestamp(at, UTC),
                distance=distance,
                snippet=snippet,
                project=project or "",
            )
            for *_, source, place, corpus, at, distance, snippet, project in rows
            if source is not None
        ]
        if len(hits) == limit or found < passages:
            return hits, pending
        passages *= MORE_PASSAGES


def distances(
    scope: Scope, *, model: str, vector: Vector | None, passages: int, further: float, hits: Collection[Hit]
) -> tuple[list[Hit], float | None, int, bool]:
    """These hits, in their order and with their distances, and the texts of the `passages` nearest passages.

    Also returns the distance that three in ten of the user's passages exceed, None if there are none; how many of the
    corpora, of any date, have a passage without a vector; and whether the user has any file, so that nobody else pays
    for a search of files. A hit that is not in `scope` any more is left out.

    If a few long texts take most places, it fetches more passages, so that there is a text for at least every third of
    `passages`. `further`: as in `Calibration`. Without a vector there are only these hits, without distances.
    """
    passages = passages if vector is not None else 0
    parameters = {
        "model": model,
        "vector": None if vector is None else _halfvec(vector),
        "further": further,
        # A sample of the user's passages shows the distance of unrelated texts; the nearest would not.
        "sample": 200,
        # A term has some ten characters in English, where function words are no terms: so many terms a note's line has.
        "per_term": 10.0,
        "sources": [source for (source, _), *_ in hits],
        "chunks": [place for (_, place), *_ in hits],
    }
    enough = passages // USUAL_PASSAGES
    while True:
        rows = _scan(_DISTANCES, scope, parameters | {"passages": passages})
        pending, unrelated, near, texts, has_files, *_ = rows[0]
        if texts >= enough or near < passages:
            break
        passages *= MORE_PASSAGES
    known = {hit.key: hit for hit in hits}
    measured: dict[Key, Hit] = {}
    for *_, source, place, corpus, at, distance, user_distance, length in rows:
        if source is not None:
            key = (source, place)
            hit = known.get(key) or Hit(key, corpus, datetime.fromtimestamp(at, UTC), length)
            measured[key] = hit._replace(distance=distance, user_distance=user_distance, length=length)
    in_order = {key: measured[key] for key in known if key in measured} | measured
    return list(in_order.values()), unrelated, pending, has_files


def nearest_passages(
    scope: Scope, *, model: str, vector: Vector, further: float, keys: Collection[Key]
) -> dict[Key, PassageSpan]:
    """The position of the nearest passage in each of these texts; none without a vector."""
    parameters = {
        **scope.parameters(),
        "model": model,
        "vector": _halfvec(vector),
        "further": further,
        "sources": [source for source, _ in keys],
        "chunks": [place for _, place in keys],
    }
    rows = fetch(_NEAREST_PASSAGES, parameters) if keys else []
    return {
        (source, place): PassageSpan(Side(side), start, start + length, is_further)
        for source, place, side, start, length, is_further in rows
    }


def embedded_texts(user_id: int, *, model: str) -> list[int]:
    """The ids of a user's texts that have a vector of this model, without those of files; in order."""
    return [text_id for (text_id,) in fetch(_EMBEDDED, {"user_id": user_id, "model": model})]


def means(user_id: int, *, model: str, texts: Sequence[int]) -> tuple[list[int], Matrix]:
    """For each of these texts (ids in `indexed_texts`) the mean of its passages' vectors, of length 1.

    Returns the ids, in order and without those that have no vector, and a matrix with a row for each (texts,
    dimensions). Further passages of long texts are left out.
    """
    rows = fetch(_MEANS, {"user_id": user_id, "model": model, "texts": list(texts)}) if texts else []
    if not rows:
        return [], np.zeros((0, 0), dtype=np.float32)
    numbers = np.frombuffer(b"".join(bytes(sent) for _, sent in rows), dtype=">f2").reshape(len(rows), -1)
    # `halfvec_send` writes two numbers before them: their count, and a reserved one.
    matrix = numbers[:, 2:].astype(np.float32)
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return [text_id for text_id, _ in rows], np.asarray(matrix / np.where(lengths == 0, 1, lengths), dtype=np.float32)


def count_pending(scope: Scope, *, model: str) -> int:
    """The number of the user's texts in the corpora, of any date, that have a passage without a vector."""
    ((count,),) = fetch(_COUNT_PENDING, {**scope.parameters(), "model": model})
    return int(count)


def _blocks_of(rows: EmbeddingQuerySet) -> list[Block]:
    held = rows.values_list("user_id", "block_id")
    return [(user_id, block_id) for user_id, block_id in set(held) if block_id is not None]


def _delete_blocks(blocks: Sequence[Block]) -> None:
    by_user: dict[int, list[int]] = {}
    for user_id, block in sorted(blocks):
        by_user.setdefault(user_id, []).append(block)
    with connection.cursor() as cursor:
        for user_id, ids in by_user.items():
            for statement in (_LOCK_BLOCKS, _UNPACK, _DELETE_BLOCKS):
                cursor.execute(statement, {"user_id": user_id, "ids": ids})


def _scan(rest: str, scope: Scope, parameters: dict[str, Any]) -> Rows:
    """A vector of another time counts like an empty slot. Without dates that would cost as much as the distances."""
    if scope.only is not None:
        return fetch(_NEAR_AMONG.format(hidden_sources=HIDDEN_SOURCES) + rest, scope.parameters() | parameters)
    slot = "CASE WHEN t{0} >= %(since)s AND t{0} < %(until)s THEN v{0} END" if scope.is_dated else "v{0}"
    slots = [slot.format(number) for number in range(SLOTS)]
    distances = {
        "inner_products": ", ".join(f"{slot} <#> q" for slot in slots),
        "cosines": ", ".join(f"{slot} <=> q" for slot in slots),
    }
    hidden = _HIDDEN if scope.hides_any else _NOTHING_HIDDEN
    return fetch(_NEAR.format(**distances, **hidden) + rest, scope.parameters() | parameters)


def _halfvec(vector: Vector) -> str:
    """A vector in half precision, in PostgreSQL's text form."""
    return str(HalfVectorField().get_prep_value(vector))
