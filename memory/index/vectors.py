"""The vectors of each user's texts: stored by a worker, and searched by the signs of their coordinates first.

`store` writes, `nearest` and `distances` read. A scan of vectors takes most of its time for their bytes. So a row also
has `bits`, one for each dimension, and a covering index has what searches narrow by, and the bits. A search takes from
it the passages whose bits differ least from the query's, and measures the vectors of these alone. A vector without bits
is from before there were any; it is measured, until `add_missing_bits` has reached it.
"""

import hashlib
import logging
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from math import pi
from typing import Any

import numpy as np
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone
from pgvector.django import HalfVectorField

from intake.attachments.services import FREE_BYTES
from memory.backends.embedders import TUNED, Embedder, Matrix, Vector
from memory.chunking import PassageSpan, Side
from memory.index.terms import fetch
from memory.models import Embedding
from memory.models.documents import HIDDEN_SOURCES, Hit, Key, Scope

# The number of a text's passages among the nearest, for most texts.
USUAL_PASSAGES = 3
# At least so many passages, whose bits are nearest, have their vectors measured (docs/decisions/0076).
CANDIDATES = 1_000

logger = logging.getLogger(__name__)

_STORE = """
UPDATE embeddings AS row
   SET vector = made.vector::halfvec, bits = made.bits::varbit, embedded_at = %(now)s, last_error = ''
  FROM unnest(%(ids)s::bigint[], %(hashes)s::bytea[], %(vectors)s::text[], %(bits)s::text[])
       AS made(id, content_hash, vector, bits)
 WHERE row.user_id = %(user_id)s AND row.id = made.id AND row.content_hash = made.content_hash AND row.vector IS NULL
"""
_ADD_BITS = """
UPDATE embeddings AS row
   SET bits = made.bits::varbit
  FROM unnest(%(ids)s::bigint[], %(bits)s::text[]) AS made(id, bits)
 WHERE row.user_id = %(user_id)s AND row.id = made.id AND row.vector IS NOT NULL AND row.bits IS NULL
"""

# The first part of a statement: the nearest passages, with what the rest wants of their rows. The scan hands on keys
# alone, because a sort copies its rows.
#
# The statement that scans also counts the pending texts, so that what is embedded meanwhile is either found or counted.
# It gives one row at least, for that count. A chat's turns come with what is shown of them.
_NEAR = """
WITH asked AS NOT MATERIALIZED (  -- so that it is a constant everywhere
    SELECT %(vector)s::halfvec AS q, %(bits)s::varbit AS query_bits
), nearest_by_bits AS MATERIALIZED (
    SELECT id
      FROM asked, embeddings
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
       AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
       AND bits IS NOT NULL{in_scope}
     ORDER BY (bits <~> query_bits) + CASE WHEN is_further THEN %(further_bits)s::float8 ELSE 0 END
     LIMIT greatest(%(candidates)s, (SELECT %(share)s * sum(texts)
                                       FROM term_segments
                                      WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)))
), near AS MATERIALIZED (
    SELECT row.*
      FROM nearest_by_bits
     CROSS JOIN LATERAL (
        SELECT id, corpus, source_id, chunk_index, part, said_at, length,
               (vector <=> q) + CASE WHEN is_further THEN %(further)s::float8 ELSE 0 END AS distance
          FROM asked, embeddings
         WHERE user_id = %(user_id)s AND id = nearest_by_bits.id
        OFFSET 0) AS row
     UNION ALL
    SELECT id, corpus, source_id, chunk_index, part, said_at, length,
           (vector <=> q) + CASE WHEN is_further THEN %(further)s::float8 ELSE 0 END
      FROM asked, embeddings
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
       AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
       AND vector IS NOT NULL AND bits IS NULL{in_scope}
     ORDER BY distance, id
     LIMIT %(passages)s
"""
# Few sources have few passages: each is measured.
_NEAR_AMONG = """
WITH asked AS NOT MATERIALIZED (
    SELECT %(vector)s::halfvec AS q
), near AS MATERIALIZED (
    SELECT id, corpus, source_id, chunk_index, part, said_at, length,
           (vector <=> q) + CASE WHEN is_further THEN %(further)s::float8 ELSE 0 END AS distance
      FROM asked, embeddings
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND source_id = ANY(%(only)s::uuid[])
       AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
       AND vector IS NOT NULL AND said_at >= %(since)s AND said_at < %(until)s
       AND source_id NOT IN ({hidden_sources})
     ORDER BY distance, id
     LIMIT %(passages)s
"""
_NEAREST = """), nearest AS MATERIALIZED (  -- each text is as near as its nearest passage
    SELECT corpus, source_id, chunk_index, min(said_at) AS said_at, min(distance) AS distance
      FROM near
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
      FROM (SELECT vector
              FROM embeddings
             WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
               AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
               AND vector IS NOT NULL AND NOT is_further
             LIMIT %(sample)s) AS some_passages, asked
), found AS MATERIALIZED (
    SELECT corpus, source_id, chunk_index, min(distance) AS distance,
           min(distance) FILTER (WHERE part = 0 OR corpus <> 'chat') AS said_distance,
           (array_agg(length ORDER BY distance) FILTER (WHERE corpus <> 'chat'))[1] AS near_length
      FROM near
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


@dataclass(frozen=True, slots=True)
class Meaning:
    """A query as its model reads it. `vector`: None while the model's endpoint is left alone; all zeros for characters
    that the model does not know.
    """

    embedder: Embedder
    vector: Vector | None

    @property
    def has_direction(self) -> bool:
        return self.vector is not None and bool(self.vector.any())

    @property
    def parameters(self) -> dict[str, Any]:
        """What a statement measures with. `further`: the added distance of a further passage, before the model's
        distances are measured; in bits, because about a right angle, where most passages are, a distance is an angle.
        """
        name, further = self.embedder.name, (self.embedder.calibration or TUNED).further
        of_model = {"model": name, "further": further, "vector": None, "bits": None, "further_bits": 0.0}
        if self.vector is None or not self.has_direction:
            return of_model
        (bits,) = signs(self.vector[np.newaxis], model=name)
        return of_model | {
            "vector": _halfvec(self.vector),
            "bits": bits,
            "further_bits": further * len(self.vector) / pi,
        }


def signs(vectors: Matrix, *, model: str) -> list[str]:
    """The bits of each vector: the signs of its coordinates after a rotation, whose seed is the model's name.

    The share of bits in which two vectors differ is that of the angle between them in a half turn, but for chance
    (M. S. Charikar, Similarity Estimation Techniques from Rounding Algorithms, 2002). The rotation is for models whose
    dimensions are unlike each other: three times, coordinates change signs and go through Hartley's transform.
    """
    dimensions = vectors.shape[1]
    seeded = np.frombuffer(hashlib.shake_256(model.encode()).digest(3 * dimensions), np.uint8)
    rotated: np.ndarray = np.asarray(vectors, np.float32)
    for flips in np.where(seeded < 128, np.float32(-1), np.float32(1)).reshape(3, dimensions):
        spectrum = np.fft.fft(rotated * flips)
        rotated = spectrum.real - spectrum.imag
    return [row.tobytes().decode() for row in np.where(rotated > 0, b"1", b"0")]


def store(rows: Sequence[Embedding], vectors: Matrix, *, model: str, now: datetime) -> None:
    """Store a batch's vectors. A row whose text has changed stays pending, a row that has a vector keeps
    it.
    """
    made = zip(rows, map(_halfvec, vectors), signs(vectors, model=model), strict=True)
    # In one order, so that two workers do not wait for each other in a circle.
    in_order = sorted(made, key=lambda each: (each[0].user_id, each[0].pk))
    with transaction.atomic(), connection.cursor() as cursor:
        for user_id, of_user in groupby(in_order, key=lambda each: each[0].user_id):
            stored, halfvecs, signed = zip(*of_user, strict=True)
            columns = {
                "ids": [row.pk for row in stored],
                "hashes": [bytes(row.content_hash) for row in stored],
                "vectors": list(halfvecs),
                "bits": list(signed),
            }
            cursor.execute(_STORE, columns | {"user_id": user_id, "now": now})


def add_missing_bits(*, until: datetime | None = None) -> int:
    """Give vectors from before there were bits theirs, until all have them or the time is up; returns their number.

    It writes each of these rows anew, so it stops while the disk is nearly full.
    """
    without = Embedding.objects.exclude(vector=None).filter(bits=None)
    owners = without.order_by("user_id", "model_id").values_list("user_id", "model_id", "model__name")
    added = 0
    while (until is None or timezone.now() < until) and (owner := owners.first()):
        folder = settings.DATABASE_FOLDER
        if folder and shutil.disk_usage(folder).free < FREE_BYTES:
            logger.warning("Vectors get no bits while the disk is nearly full: searches by meaning stay slow.")
            break
        user_id, model_id, model = owner
        some = list(without.filter(user_id=user_id, model_id=model_id).values_list("pk", "vector")[:500])
        if some:
            bits = signs(np.array([vector for _, vector in some], np.float32), model=model)
            with connection.cursor() as cursor:
                cursor.execute(_ADD_BITS, {"user_id": user_id, "ids": [pk for pk, _ in some], "bits": bits})
                added += cursor.rowcount
    return added


def retire_blocks() -> None:
    """Remove the table with second copies of the vectors, which version 1.0 scanned; as the owner of the tables.

    While a vector has no bits, the table and the column that refers to it stay, without a row, so that version 1.0 runs
    on these data.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('embedding_blocks') IS NULL")
        if cursor.fetchone()[0]:
            return
        # The policies show the owner no row.
        cursor.execute("ALTER TABLE embeddings NO FORCE ROW LEVEL SECURITY, DROP COLUMN IF EXISTS block_id")
        cursor.execute("SELECT EXISTS (SELECT FROM embeddings WHERE vector IS NOT NULL AND bits IS NULL)")
        is_needed = cursor.fetchone()[0]
        cursor.execute("ALTER TABLE embeddings FORCE ROW LEVEL SECURITY")
        if is_needed:
            roles = settings.DATABASE_ROLES
            cursor.execute("TRUNCATE embedding_blocks")
            cursor.execute("ALTER TABLE embeddings ADD COLUMN block_id bigint")
            cursor.execute(f"GRANT UPDATE (block_id) ON embeddings TO {roles.worker}, {roles.staff}")
        else:
            cursor.execute("DROP TABLE embedding_blocks")


def nearest(scope: Scope, meaning: Meaning, *, limit: int, snippet_length: int = 0) -> tuple[list[Hit], int]:
    """The `limit` nearest texts in `scope`, each once, the nearest first; exact.

    Also returns how many of the corpora, of any date, have a passage without a vector. Only turns have a snippet.

    It first fetches a few passages per text, because few texts crowd a ranking. If they do, it fetches more, until
    there are enough texts or no more passages.
    """
    parameters = meaning.parameters | {"length": snippet_length}
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
        passages *= 8


def distances(
    scope: Scope, meaning: Meaning, *, passages: int, hits: Collection[Hit]
) -> tuple[list[Hit], float | None, int, bool]:
    """These hits, in their order and with their distances, and the texts of the `passages` nearest passages.

    Also returns the distance that three in ten of the user's passages exceed, None if there are none; how many of the
    corpora, of any date, have a passage without a vector; and whether the user has any file, so that nobody else pays
    for a search of files. A hit that is not in `scope` any more is left out.

    If a few long texts take most places, it fetches more passages, so that there is a text for at least every third of
    `passages`. Without a direction there are only these hits, without distances.
    """
    passages = passages if meaning.has_direction else 0
    parameters = {
        **meaning.parameters,
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
        passages *= 8
    known = {hit.key: hit for hit in hits}
    measured: dict[Key, Hit] = {}
    for *_, source, place, corpus, at, distance, user_distance, length in rows:
        if source is not None:
            key = (source, place)
            hit = known.get(key) or Hit(key, corpus, datetime.fromtimestamp(at, UTC), length)
            measured[key] = hit._replace(distance=distance, user_distance=user_distance, length=length)
    in_order = {key: measured[key] for key in known if key in measured} | measured
    return list(in_order.values()), unrelated, pending, has_files


def nearest_passages(scope: Scope, meaning: Meaning, keys: Collection[Key]) -> dict[Key, PassageSpan]:
    """The position of the nearest passage in each of these texts; none without a vector."""
    parameters = {
        **scope.parameters(),
        **meaning.parameters,
        "sources": [source for source, _ in keys],
        "chunks": [place for _, place in keys],
    }
    rows = fetch(_NEAREST_PASSAGES, parameters) if keys and meaning.has_direction else []
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


def _scan(rest: str, scope: Scope, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    if scope.only is not None:
        return fetch(_NEAR_AMONG.format(hidden_sources=HIDDEN_SOURCES) + rest, scope.parameters() | parameters)
    # Conditions that exclude nothing would still take time at each row.
    in_scope = " AND said_at >= %(since)s AND said_at < %(until)s" if scope.is_dated else ""
    if scope.hides_any:
        in_scope += f" AND source_id NOT IN ({HIDDEN_SOURCES})"
    # And 3 % of all, of which a text has four on average: segments know how many texts there are, so no row is counted.
    measured = {"candidates": max(CANDIDATES, 3 * parameters["passages"]), "share": 0.12}
    return fetch(_NEAR.format(in_scope=in_scope) + rest, scope.parameters() | parameters | measured)


def _halfvec(vector: Vector) -> str:
    """A vector in half precision, in PostgreSQL's text form."""
    return str(HalfVectorField().get_prep_value(vector))
