"""The segments of each user's inverted index: workers write them, merge them, and rewrite those with deleted texts.

`flush` makes a segment of a user's pending terms and merges it with smaller ones, so that a term's postings are in a
few places however long the history is. `purge` rewrites the segments that contain deleted texts. A segment is never
changed, only replaced in one transaction, so a search sees each text in exactly one place. The segments are like
Lucene's; they are merged by the logarithmic method of J. Bentley and J. Saxe, Decomposable Searching Problems I (1980).

Locks are taken in one order: the user's row (by the foreign key of a new segment), then the replaced segments; segments
that another worker holds are skipped. The deletion of a text takes neither lock. So a deadlock is impossible.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from core.isolation.acting import is_cluster
from core.isolation.inserting import insert_values
from core.rounds import for_each, seconds_until

# The number flushed by one statement.
BATCH_TEXTS = 200
# Merging this many takes a second of PostgreSQL's time, and their ordinals fit into two bytes.
MOST_TEXTS = 8_192
# PostgreSQL compresses a row of more than 2,000 bytes; about five rows with this many postings then fill a page.
BLOCK_POSTINGS = 512

# In a different order for each worker, so that two seldom work on one user.
_OWNERS_OF_PENDING = "SELECT user_id, corpus FROM pending_terms GROUP BY user_id, corpus ORDER BY random()"
_OWNERS_OF_DELETED = "SELECT DISTINCT user_id, corpus FROM deleted_texts ORDER BY user_id, corpus"

# First of all, because its foreign key waits for a running deletion of the user.
_BEGIN_SEGMENT = """
INSERT INTO term_segments
       (user_id, corpus, texts, said_length, answered_length, text_ids, said_lengths, answered_lengths)
VALUES (%(user_id)s, %(corpus)s, 0, 0, 0, '{}', '{}', '{}')
RETURNING id
"""

# From `text` (text_id, said_length, answered_length, ordinal) and `posting` (lexeme, ordinal, said, answered): fills
# the segment that was begun, and writes its blocks. Terms are in the order of their characters' codes, as in the key.
_WRITE = """
WITH {source}, filled AS (
    UPDATE term_segments AS segment
       SET texts = every.texts, said_length = every.said_length, answered_length = every.answered_length,
           text_ids = every.text_ids, said_lengths = every.said_lengths, answered_lengths = every.answered_lengths
      FROM (SELECT count(*) AS texts, sum(said_length) AS said_length, sum(answered_length) AS answered_length,
                   array_agg(text_id ORDER BY ordinal) AS text_ids,
                   array_agg(said_length ORDER BY ordinal) AS said_lengths,
                   array_agg(answered_length ORDER BY ordinal) AS answered_lengths
              FROM text
            HAVING count(*) > 0) AS every
     WHERE segment.user_id = %(user_id)s AND segment.id = %(segment)s
    RETURNING segment.texts
), term AS (
    SELECT lexeme, count(*)::int AS postings, array_agg(ordinal ORDER BY ordinal) AS ordinals,
           array_agg(said ORDER BY ordinal) AS said, array_agg(answered ORDER BY ordinal) AS answered
      FROM posting
     GROUP BY lexeme
), placed AS MATERIALIZED (
    SELECT *, (last - postings) / %(block_postings)s AS block
      FROM (SELECT *, sum(postings) OVER (ORDER BY lexeme)::int AS last FROM term) AS summed
), directory AS (
    SELECT block, min(lexeme) AS first_lexeme, array_agg(lexeme ORDER BY lexeme) AS lexemes,
           array_agg(last - before ORDER BY lexeme) AS ends
      FROM (SELECT block, lexeme, last, min(last - postings) OVER (PARTITION BY block) AS before FROM placed) AS each
     GROUP BY block
), lists AS (
    SELECT block, array_agg(ordinal) AS ordinals, array_agg(said) AS said, array_agg(answered) AS answered
      FROM (SELECT block, unnest(ordinals) AS ordinal, unnest(said) AS said, unnest(answered) AS answered
              FROM (SELECT * FROM placed ORDER BY lexeme) AS sorted) AS each
     GROUP BY block
){result}
"""
_WRITTEN = """, written AS (
    INSERT INTO term_blocks (user_id, segment_id, first_lexeme, lexemes, ends, ordinals, said, answered)
    SELECT %(user_id)s, %(segment)s, first_lexeme, lexemes, ends, ordinals, said, answered
      FROM directory JOIN lists USING (block)
     ORDER BY first_lexeme
)
SELECT coalesce(sum(texts), 0) FROM filled
"""
# On a cluster a separate statement inserts the blocks: Citus cannot send a combined statement to a single node.
_TO_WRITE = """
SELECT (SELECT coalesce(sum(texts), 0) FROM filled), first_lexeme, lexemes, ends, ordinals, said, answered
  FROM (SELECT 1) AS once LEFT JOIN (SELECT * FROM directory JOIN lists USING (block)) AS made ON true
 ORDER BY first_lexeme
"""
_BLOCK_COLUMNS = ("user_id", "segment_id", "first_lexeme", "lexemes", "ends", "ordinals", "said", "answered")


def _statements(source: str) -> tuple[str, str]:
    """`_WRITE` for one source, as a single server and as a cluster runs it."""
    return _WRITE.format(source=source, result=_WRITTEN), _WRITE.format(source=source, result=_TO_WRITE)


# A text that is being deleted is skipped. A deletion waits for the flush of its text, and then finds it in a segment.
# The texts are chosen in parts of their own: without statistics, PostgreSQL runs a subquery again for each pending row.
_FLUSH = _statements(
    """pending AS MATERIALIZED (
    SELECT text_id
      FROM pending_terms
     WHERE user_id = %(user_id)s AND corpus = %(corpus)s
     ORDER BY text_id
     LIMIT %(batch)s
       FOR UPDATE SKIP LOCKED
), kept AS MATERIALIZED (
    SELECT id
      FROM indexed_texts
     WHERE user_id = %(user_id)s AND id = ANY(ARRAY(SELECT text_id FROM pending))
       FOR KEY SHARE SKIP LOCKED
), taken AS (
    DELETE FROM pending_terms
     WHERE user_id = %(user_id)s AND text_id = ANY(ARRAY(SELECT id FROM kept))
    RETURNING *
), text AS MATERIALIZED (
    SELECT text_id, said_length, answered_length, (row_number() OVER (ORDER BY text_id))::smallint AS ordinal FROM taken
), posting AS (
    -- A term is counted 256 times at most in each piece of a text, and makes no difference beyond some thousands.
    SELECT each.lexeme COLLATE "C" AS lexeme, ordinal, least(sum(each.said), 32767)::smallint AS said,
           least(sum(each.answered), 32767)::smallint AS answered
      FROM taken
      JOIN text USING (text_id)
     CROSS JOIN LATERAL unnest(lexemes, taken.said, taken.answered) AS each(lexeme, said, answered)
     GROUP BY each.lexeme COLLATE "C", ordinal
)"""
)

_SIZES = "SELECT id, texts FROM term_segments WHERE user_id = %(user_id)s AND corpus = %(corpus)s ORDER BY texts, id"
_LOCK = """
SELECT id FROM term_segments WHERE user_id = %(user_id)s AND id = ANY(%(replaced)s) ORDER BY id FOR UPDATE SKIP LOCKED
"""
_REPLACE = _statements(
    """text AS MATERIALIZED (
    SELECT segment.id AS segment_id, held.ordinal AS held_as, held.text_id, held.said_length, held.answered_length,
           (row_number() OVER (ORDER BY held.text_id))::smallint AS ordinal
      FROM term_segments AS segment
     CROSS JOIN LATERAL unnest(text_ids, said_lengths, answered_lengths) WITH ORDINALITY
           AS held(text_id, said_length, answered_length, ordinal)
     WHERE segment.user_id = %(user_id)s AND segment.id = ANY(%(replaced)s)
       AND held.text_id NOT IN (SELECT text_id FROM deleted_texts WHERE user_id = %(user_id)s)
), posting AS (
    SELECT lexeme COLLATE "C" AS lexeme, text.ordinal, said, answered
      FROM (SELECT segment_id, lexeme, unnest(ordinals[first:last]) AS held_as, unnest(said[first:last]) AS said,
                   unnest(answered[first:last]) AS answered
              FROM term_blocks
             CROSS JOIN LATERAL (SELECT lexeme, last, 1 + lag(last, 1, 0) OVER () AS first
                                   FROM unnest(lexemes, ends) AS each(lexeme, last)) AS slice
             WHERE user_id = %(user_id)s AND segment_id = ANY(%(replaced)s)) AS held
      JOIN text USING (segment_id, held_as)
)"""
)
# A foreign key deletes the blocks with it.
_DROP = "DELETE FROM term_segments WHERE user_id = %(user_id)s AND id = ANY(%(dropped)s)"

# Texts that were deleted in the database itself: foreign keys cannot cascade into an array.
_MARK_LOST = """
INSERT INTO deleted_texts (user_id, corpus, text_id)
SELECT segment.user_id, segment.corpus, held.text_id
  FROM term_segments AS segment
 CROSS JOIN LATERAL unnest(text_ids) AS held(text_id)
 WHERE segment.user_id = %(user_id)s
   AND NOT EXISTS (SELECT FROM indexed_texts AS text WHERE text.user_id = %(user_id)s AND text.id = held.text_id)
    ON CONFLICT DO NOTHING
"""

_WITH_DELETED = """
SELECT id
  FROM term_segments
 WHERE user_id = %(user_id)s AND corpus = %(corpus)s
   AND EXISTS (SELECT
                 FROM unnest(text_ids) AS held(text_id)
                WHERE text_id IN (SELECT text_id
                                    FROM deleted_texts
                                   WHERE user_id = %(user_id)s AND corpus = %(corpus)s))
 ORDER BY id
"""
# A tombstone whose text is in no segment is done. If a merge is copying the text at this moment, the old segment still
# has it.
_DROP_TOMBSTONES = """
DELETE FROM deleted_texts
 WHERE user_id = %(user_id)s AND corpus = %(corpus)s
   AND text_id NOT IN (SELECT unnest(text_ids)
                         FROM term_segments
                        WHERE user_id = %(user_id)s AND corpus = %(corpus)s)
"""

_TEXTS_OF_SEGMENTS = "SELECT id, text_ids FROM term_segments WHERE user_id = %(user_id)s"
_POSTINGS = "SELECT segment_id, lexemes, ends, ordinals, said FROM term_blocks WHERE user_id = %(user_id)s"
_PENDING_POSTINGS = "SELECT text_id, lexemes, said FROM pending_terms WHERE user_id = %(user_id)s"
_FREQUENT = """
SELECT lexeme
  FROM (SELECT lexeme, texts
          FROM term_blocks
         CROSS JOIN LATERAL (SELECT lexeme, last - lag(last, 1, 0) OVER () AS texts
                               FROM unnest(lexemes, ends) AS each(lexeme, last)) AS slice
         WHERE user_id = %(user_id)s
         UNION ALL
        SELECT lexeme, 1 FROM pending_terms CROSS JOIN LATERAL unnest(lexemes) AS lexeme WHERE user_id = %(user_id)s
       ) AS counted
 GROUP BY lexeme
HAVING sum(texts) >= %(least)s
 ORDER BY sum(texts) DESC, lexeme
 LIMIT 50000
"""


class Postings(NamedTuple):
    """Neighbouring terms with all of their postings in a segment, one term after the other.

    Those of `lexemes[k]` end at `ends[k]`. `text_ids` and `said` are as long as the postings: the text, and the term's
    frequency on the user's side.
    """

    lexemes: list[str]
    ends: list[int]
    text_ids: list[int]
    said: list[int]


def postings_of(user_id: int) -> Iterator[Postings]:
    """All of a user's postings, of every corpus, including deleted texts until a worker has removed them.

    Postings that are being merged may be missing.
    """
    with connection.cursor() as cursor:
        cursor.execute(_TEXTS_OF_SEGMENTS, {"user_id": user_id})
        texts = dict(cursor.fetchall())
        cursor.execute(_POSTINGS, {"user_id": user_id})
        while rows := cursor.fetchmany(200):
            for segment, lexemes, ends, ordinals, said in rows:
                if ids := texts.get(segment):
                    yield Postings(lexemes, ends, [ids[ordinal - 1] for ordinal in ordinals], said)
        cursor.execute(_PENDING_POSTINGS, {"user_id": user_id})
        for text_id, lexemes, said in cursor.fetchall():
            yield Postings(lexemes, [*range(1, len(lexemes) + 1)], [text_id] * len(lexemes), said)


def frequent_terms(user_id: int, *, least: int) -> list[str]:
    """The terms that at least so many of a user's texts contain, the commonest first; at most 50,000."""
    with connection.cursor() as cursor:
        cursor.execute(_FREQUENT, {"user_id": user_id, "least": least})
        return [lexeme for (lexeme,) in cursor.fetchall()]


def flush(*, until: datetime | None = None) -> int:
    """Flush pending terms into segments, until none are left or the time is up; returns the number of texts.

    Repeating it does nothing, and several workers share the work.
    """
    flushed: list[int] = []

    def flush_one(owner: dict[str, Any]) -> None:
        while texts := _flush_batch(owner):
            flushed.append(texts)
            _merge(owner)
            if until is not None and timezone.now() >= until:
                return

    for_each("memory.flush_terms, texts", _owners(_OWNERS_OF_PENDING), flush_one, seconds=seconds_until(until))
    return sum(flushed)


def purge(*, until: datetime | None = None) -> int:
    """Rewrite the segments that contain deleted texts, all or until the time is up; returns their number."""
    rewritten: list[bool] = []

    def purge_one(owner: dict[str, Any]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_WITH_DELETED, owner)
            stale = [segment for (segment,) in cursor.fetchall()]
        rewritten.extend(_replace(owner, [segment]) for segment in stale)
        with connection.cursor() as cursor:
            cursor.execute(_DROP_TOMBSTONES, owner)

    for_each("memory.flush_terms, deleted texts", _owners(_OWNERS_OF_DELETED), purge_one, seconds=seconds_until(until))
    return sum(rewritten)


def mark_lost(user_id: int) -> int:
    """Mark texts of a user that were deleted without the application; returns their number. It reads all segments.

    Until then no search finds them, but they still count in the user's statistics.
    """
    with connection.cursor() as cursor:
        cursor.execute(_MARK_LOST, {"user_id": user_id})
        return int(cursor.rowcount)


def _owners(statement: str) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [{"user_id": user_id, "corpus": corpus} for user_id, corpus in cursor.fetchall()]


def _flush_batch(owner: dict[str, Any]) -> int:
    try:
        with transaction.atomic():
            return _write(_FLUSH, {**owner, "segment": _begin_segment(owner), "batch": BATCH_TEXTS})
    except IntegrityError:
        # The user is being deleted at this moment, with all terms.
        return 0


def _merge(owner: dict[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_SIZES, owner)
        chosen = segments_to_merge(cursor.fetchall())
    if chosen:
        _replace(owner, chosen)


def segments_to_merge(sizes: Sequence[tuple[int, int]]) -> list[int]:
    """Of segments (id, texts), the smallest first: those to merge into one; none, or at least two."""
    chosen: list[int] = []
    together = 0
    for segment, texts in sizes:
        # A segment stays while it has more than three times the texts of all smaller ones together. A user with
        # 10,000 texts has about five segments, and each text is written again some ten times.
        if chosen and (texts > 3 * together or together + texts > MOST_TEXTS):
            break
        chosen.append(segment)
        together += texts
    return chosen if len(chosen) > 1 else []


def _replace(owner: dict[str, Any], segments: list[int]) -> bool:
    """Replace several segments by one, without their deleted texts; False if another worker holds one of them."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            parameters = {**owner, "segment": _begin_segment(owner), "replaced": segments}
            cursor.execute(_LOCK, parameters)
            if cursor.rowcount < len(segments):
                transaction.set_rollback(True)
                return False
            _write(_REPLACE, parameters)
            cursor.execute(_DROP, {**parameters, "dropped": segments})
    except IntegrityError:
        # The user is being deleted at this moment, with all segments.
        return False
    return True


def _begin_segment(owner: dict[str, Any]) -> int:
    with connection.cursor() as cursor:
        cursor.execute(_BEGIN_SEGMENT, owner)
        (segment,) = cursor.fetchone()
        return int(segment)


def _write(statements: tuple[str, str], parameters: dict[str, Any]) -> int:
    """Fill the new segment, or delete it if it is empty; returns its number of texts."""
    on_cluster = is_cluster(connection)
    with connection.cursor() as cursor:
        cursor.execute(statements[on_cluster], {**parameters, "block_postings": BLOCK_POSTINGS})
        (texts, *block), *others = cursor.fetchall()
        blocks = [block, *(other for _, *other in others)] if on_cluster and texts else []
        if block and block[0] is not None:
            begin = (parameters["user_id"], parameters["segment"])
            insert_values("term_blocks", _BLOCK_COLUMNS, [(*begin, *columns) for columns in blocks])
        if not texts:
            cursor.execute(_DROP, {**parameters, "dropped": [parameters["segment"]]})
        return int(texts)
