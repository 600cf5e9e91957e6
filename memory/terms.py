"""The terms of each person's texts: counted when a text is saved, scored with BM25F by every search.

`add` and `delete` follow the texts, `flush` moves what was added to the postings, `score` reads. A hundred postings are
a hundred places in a large index, too many to write while somebody waits. So a text's terms are kept in one pending row
at first (`unposted_words`), where a search looks as well, and a worker flushes them in batches .

Before the parser a text is written so that the ways of writing one thing meet (`indexed_form`): compatibility forms are
one (NFKC); a word with accents stands there a second time without (`Kraków Krakow`), and a number in groups in one
(`84,300 84300`), so that both spellings find it, the exact one first; scripts without spaces, and Korean, whose
particles are written on to the word, are cut into pairs of characters, as PGroonga and Lucene's CJKBigramFilter do.
"""

import re
import unicodedata
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from memory.chunking import UNSPACED
from memory.models import IndexedText
from memory.models.corpora import Place, PlainKey, Scope
from memory.models.postings import IndexedTextQuerySet
from memory.sources import Entry, Text, content_hash
from memory.trigrams import trigram_filter

# PostgreSQL finds words in a megabyte at most, their positions included; a longer text is given to it in pieces.
PIECE_CHARACTERS = 100_000
# A longer "word" is data rather than language, and would not fit an index entry in the end.
MAX_LEXEME = 255
HANGUL = "\u1100-\u11ff\uac00-\ud7af"
_PAIRED_RUN = re.compile(rf"[{UNSPACED}{HANGUL}]+")
_WORD = re.compile(r"[^\W\d_]+")
# 84,300 and 84 300 and 84.300 and 84'300; not 1.5, not 2024 300.
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:[ ,.'\u2019]\d{3})+(?![\d.,]?\d)")
_NO_DIGIT = re.compile(r"\D")
# In these scripts a mark is an accent; in others, such as Devanagari or Thai, it is a vowel.
_WITH_ACCENTS = ("LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW")
# Letters that are letters of their own, and are yet written plainly where the keyboard lacks them.
_PLAIN = {"ß": "ss", "ẞ": "SS", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D"}
_PLAIN |= {"þ": "th", "Þ": "Th", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ħ": "h", "Ħ": "H"}

# Flushed by one statement.
BATCH_TEXTS = 200

# A row if the text was not there. A term of both sides, or of several pieces, is kept once for each: bringing them
# together takes longer than all the rest that is done with them here.
_ADD = """
WITH term AS (
    SELECT coalesce(array_agg(lexeme), '{}') AS lexemes,
           coalesce(array_agg(said), '{}') AS said, coalesce(sum(said), 0) AS said_length,
           coalesce(array_agg(answered), '{}') AS answered, coalesce(sum(answered), 0) AS answered_length
      FROM (SELECT lexeme, cardinality(positions) AS said, 0 AS answered
              FROM unnest(%(said)s::text[]) AS piece, unnest(to_tsvector(%(configuration)s::text::regconfig, piece))
            UNION ALL
            SELECT lexeme, 0, cardinality(positions)
              FROM unnest(%(answered)s::text[]) AS piece,
                   unnest(to_tsvector(%(configuration)s::text::regconfig, piece))) AS side
     WHERE length(lexeme) <= %(max_lexeme)s
), indexed AS (
    INSERT INTO indexed_texts
           (user_id, corpus, source_id, chunk_index, said_at, configuration, content_hash, signature,
            said_length, answered_length)
    SELECT %(user_id)s, %(corpus)s, %(source_id)s, %(chunk_index)s, %(said_at)s, %(configuration)s, %(text_hash)s,
           %(signature)s::varbit, said_length, answered_length
      FROM term
        ON CONFLICT DO NOTHING
    RETURNING *
), pending AS (
    INSERT INTO unposted_words (text_id, user_id, corpus, said_length, answered_length, lexemes, said, answered)
    SELECT id, user_id, corpus, indexed.said_length, indexed.answered_length, lexemes, said, answered
      FROM indexed
     CROSS JOIN term
)
SELECT count(*) FROM indexed
"""

_OWNERS = "SELECT DISTINCT user_id, corpus FROM unposted_words ORDER BY user_id, corpus"

_START_TOTALS = """
INSERT INTO text_totals (user_id, corpus, texts, said_length, answered_length)
VALUES (%(user_id)s, %(corpus)s, 0, 0, 0)
    ON CONFLICT DO NOTHING
"""

# The row lock on `text_totals` serialises everything that changes one person's postings, so a deletion cannot deadlock
# with a worker.
LOCK_TOTALS = "SELECT FROM text_totals WHERE user_id = %(user_id)s AND corpus = %(corpus)s FOR UPDATE"
_LOCK_TOTALS_IF_FREE = f"{LOCK_TOTALS} SKIP LOCKED"

# Deletes texts of one corpus in two statements, after the lock: the terms of those that are pending are counted nowhere
# yet. A foreign key takes postings along.
_DELETE_PENDING = "DELETE FROM unposted_words WHERE user_id = %(user_id)s AND text_id = ANY(%(ids)s) RETURNING text_id"
_DELETE = """
WITH deleted AS (
    DELETE FROM indexed_texts
     WHERE user_id = %(user_id)s AND id = ANY(%(ids)s)
    RETURNING id, said_length, answered_length
)
UPDATE text_totals AS totals
   SET texts = totals.texts - fewer.texts, said_length = totals.said_length - fewer.said_length,
       answered_length = totals.answered_length - fewer.answered_length
  FROM (SELECT count(*) AS texts, sum(said_length) AS said_length, sum(answered_length) AS answered_length
          FROM deleted
         WHERE id <> ALL(%(pending)s)
        HAVING count(*) > 0) AS fewer
 WHERE user_id = %(user_id)s AND corpus = %(corpus)s
"""

# A text that is being deleted is passed over. A deletion waits for the flush of its texts, and then deletes their
# postings by a foreign key.
_FLUSH = """
WITH taken AS (
    DELETE FROM unposted_words
     WHERE user_id = %(user_id)s
       AND text_id IN (SELECT text_id
                         FROM unposted_words AS pending
                         JOIN indexed_texts AS text ON text.user_id = pending.user_id AND text.id = text_id
                        WHERE pending.user_id = %(user_id)s AND pending.corpus = %(corpus)s
                        ORDER BY text_id
                        LIMIT %(batch)s
                          FOR UPDATE OF pending SKIP LOCKED
                          FOR KEY SHARE OF text SKIP LOCKED)
    RETURNING *
), flushed AS (
    INSERT INTO postings (user_id, corpus, text_id, said_length, answered_length, lexeme, said, answered)
    SELECT user_id, corpus, text_id, said_length, answered_length, term.lexeme, sum(term.said), sum(term.answered)
      FROM taken CROSS JOIN LATERAL unnest(lexemes, taken.said, taken.answered) AS term(lexeme, said, answered)
     GROUP BY user_id, corpus, text_id, said_length, answered_length, term.lexeme
     ORDER BY term.lexeme  -- neighbours in the index
), counted AS (
    UPDATE text_totals AS totals
       SET texts = totals.texts + more.texts, said_length = totals.said_length + more.said_length,
           answered_length = totals.answered_length + more.answered_length
      FROM (SELECT count(*) AS texts, sum(said_length) AS said_length, sum(answered_length) AS answered_length
              FROM taken
            HAVING count(*) > 0) AS more
     WHERE user_id = %(user_id)s AND corpus = %(corpus)s
)
SELECT count(*) FROM taken
"""


# BM25F over the person's own postings, their statistics theirs alone:
#
#     idf = ln(1 + (N - df + 0.5) / (df + 0.5))
#     tf = sum over sides of  weight * count / (1 - b + b * length / average length)
#     score = sum over the query's terms of  idf * tf / (k1 + tf)
#
# Source: S. Robertson and H. Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), section 3.6.
#
# `k1` has its usual value. A turn is long because its answer explains, not because it says the same again: hence the
# milder half of the usual correction for length. Most questions are about what the user said, so a term there counts as
# much as two in the answer.
K1 = 1.2
B = 0.5
SAID_WEIGHT = 2.0

# A term's own statistics are counted before its postings are read for good: reading an index twice is cheaper than
# keeping what was read.
_SCORE = """
WITH mine AS MATERIALIZED (
    -- A side that nobody ever used has no average length; any will do.
    SELECT texts::float8, coalesce(nullif(said_length / texts, 0), 1)::float8 AS said_length,
           coalesce(nullif(answered_length / texts, 0), 1)::float8 AS answered_length
      FROM (SELECT nullif(sum(texts), 0) AS texts, sum(said_length) AS said_length,
                   sum(answered_length) AS answered_length
              FROM (SELECT texts, said_length, answered_length
                      FROM text_totals
                     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
                     UNION ALL
                    SELECT 1, said_length, answered_length
                      FROM unposted_words
                     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)) AS counted) AS together
), asked AS MATERIALIZED (
    SELECT lexeme FROM unnest(to_tsvector(%(configuration)s::regconfig, %(query)s))
), pending AS MATERIALIZED (
    -- Of what was saved a moment ago: seldom any.
    SELECT text_id, term.lexeme, sum(term.said)::int AS said, sum(term.answered)::int AS answered,
           said_length, answered_length
      FROM unposted_words AS row
     CROSS JOIN LATERAL unnest(lexemes, row.said, row.answered) AS term(lexeme, said, answered)
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
       AND lexemes && ARRAY(SELECT lexeme FROM asked) AND term.lexeme = ANY(ARRAY(SELECT lexeme FROM asked))
     GROUP BY text_id, term.lexeme, said_length, answered_length
), term AS MATERIALIZED (
    SELECT lexeme, having_it, ln(1 + (texts - having_it + 0.5) / (having_it + 0.5)) AS idf, 1 - %(b)s::float8 AS rest,
           %(b)s / said_length AS per_term_said, %(b)s / answered_length AS per_term_answered
      FROM asked
     CROSS JOIN mine
     CROSS JOIN LATERAL (
        SELECT (SELECT count(*)
                  FROM postings AS p
                 WHERE p.user_id = %(user_id)s AND p.corpus = ANY(%(corpora)s) AND p.lexeme = asked.lexeme)
               + (SELECT count(*) FROM pending WHERE pending.lexeme = asked.lexeme) AS having_it
        OFFSET 0) AS counted  -- counted once
), hit AS (
    SELECT text_id, idf, having_it,
           %(said_weight)s::float8 * said / (rest + per_term_said * said_length) AS said,
           answered / (rest + per_term_answered * answered_length) AS answered
      FROM (SELECT text_id, said, answered, said_length, answered_length, idf, having_it, rest, per_term_said,
                   per_term_answered
              FROM term
              JOIN postings AS p USING (lexeme)
             WHERE p.user_id = %(user_id)s AND p.corpus = ANY(%(corpora)s)
             UNION ALL
            SELECT text_id, said, answered, said_length, answered_length, idf, having_it, rest, per_term_said,
                   per_term_answered
              FROM term
              JOIN pending USING (lexeme)) AS either
    OFFSET 0  -- neither is computed more than once
), best AS (
    SELECT text_id, sum(idf * (said + answered) / (%(k1)s::float8 + said + answered)) AS score,
           sum(idf * said / (%(k1)s::float8 + said)) AS said_score, bool_or(having_it = 1) AS has_only
      FROM hit
     -- The postings of a common term are many, and their dates are with the texts. What a term is worth does not depend
     -- on the dates that are asked for.
     WHERE NOT %(is_dated)s
        OR text_id IN (SELECT id
                         FROM indexed_texts
                        WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s)
                          AND said_at >= %(since)s AND said_at < %(until)s)
     GROUP BY text_id
     ORDER BY score DESC, text_id
     LIMIT %(limit)s
)
SELECT source_id::text, chunk_index, score, said_score, has_only, (SELECT sum(idf) FROM term)
  FROM best
 -- A row each by its key: for a hundred of them the planner would rather read everybody's, but for the OFFSET.
 CROSS JOIN LATERAL (SELECT source_id, chunk_index FROM indexed_texts WHERE id = text_id OFFSET 0) AS text
 ORDER BY score DESC, text_id
"""


class TermHit(NamedTuple):
    """A text that shares terms with the query. `said_score` is what the user's own side alone would earn it.

    `has_only`: whether it has a term of the query's that stands in no other text of the person's.
    """

    key: PlainKey
    score: float
    said_score: float
    has_only: bool = False


class TermHits(NamedTuple):
    """The best texts, best first. `ideal` is what a text would score that said nothing but the query's terms."""

    hits: list[TermHit]
    ideal: float


def add(entry: Entry) -> set[int]:
    """Make the terms at a place match its texts; returns the chunks whose did not.

    Must run in the transaction that saves the texts.
    """
    if entry.place.chunk_index is None:
        return _add_changed(entry)
    (text,) = entry.texts
    return {text.key.chunk_index} if _add_one(text, entry.place) else set()


def add_many(texts: Sequence[Text]) -> None:
    """Add the terms of texts that are new, sent to the database together. The same transaction saves the texts."""
    with connection.cursor() as cursor:
        # Each is sent as it is made, so that the database parses one text while the next one's filter is computed.
        cursor.executemany(_ADD, map(row_of, texts))  # type: ignore[arg-type]  # any iterable will do


def delete(place: Place, *, chunks: Collection[int] | None = None) -> None:
    """Remove the terms of what is gone; `chunks`: of these chunks of a source alone."""
    texts = IndexedText.objects.at(place)
    _delete(texts if chunks is None else texts.filter(chunk_index__in=chunks), place)


def flush(*, until: datetime | None = None) -> int:
    """Flush pending terms into the postings, until none are left or the time is up; returns of how many texts.

    Repeating it does nothing, and several workers share the work.
    """
    flushed = 0
    with connection.cursor() as cursor:
        cursor.execute(_OWNERS)
        owners = cursor.fetchall()
    for user_id, corpus in owners:
        while texts := _flush_batch({"user_id": user_id, "corpus": corpus, "batch": BATCH_TEXTS}):
            flushed += texts
            if until is not None and timezone.now() >= until:
                return flushed
    return flushed


def score(scope: Scope, *, query: str, limit: int) -> TermHits:
    """The best texts in `scope` that share terms with `query`, best first; none if it has only stop words."""
    parameters = {
        **scope.parameters(),
        "is_dated": scope.is_dated,
        "configuration": settings.TEXT_SEARCH_CONFIG,
        "query": indexed_form(query),
        "said_weight": SAID_WEIGHT,
        "b": B,
        "k1": K1,
        "limit": limit,
    }
    with connection.cursor() as cursor:
        cursor.execute(_SCORE, parameters)
        rows = cursor.fetchall()
    hits = [TermHit((source, place), score, said, has_only) for source, place, score, said, has_only, _ in rows]
    return TermHits(hits, ideal=rows[0][-1] if rows else 0.0)


def searchable(text: str) -> str:
    """A text without the one character that PostgreSQL has no place for."""
    return text.replace("\0", " ")


def indexed_form(text: str) -> str:
    """As both a text and a query are given to the parser."""
    text = searchable(text)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = _WORD.sub(_with_plain_form, text)
        text = _PAIRED_RUN.sub(_in_pairs, text)
    return _GROUPED.sub(_with_ungrouped_form, text)


def pieces(form: str) -> list[str]:
    """An indexed form in pieces that the parser takes, cut between words where there is a space."""
    cut: list[str] = []
    start = 0
    while len(form) - start > PIECE_CHARACTERS:
        end = form.rfind(" ", start + 1, start + PIECE_CHARACTERS) + 1 or start + PIECE_CHARACTERS
        cut.append(form[start:end])
        start = end
    return [*cut, form[start:]]


def without_accents(text: str) -> str:
    """In the scripts that have accents; what follows a letter of another one is left as it is."""
    return unicodedata.normalize("NFC", "".join(_plain_characters(unicodedata.normalize("NFD", text))))


def _plain_characters(decomposed: str) -> list[str]:
    plain: list[str] = []
    has_accents = False
    for character in decomposed:
        if not unicodedata.combining(character):
            has_accents = unicodedata.name(character, "").startswith(_WITH_ACCENTS)
            plain.append(_PLAIN.get(character, character))
        elif not has_accents:
            plain.append(character)
    return plain


def _with_plain_form(word: re.Match[str]) -> str:
    if word[0].isascii():
        return word[0]
    plain = without_accents(word[0])
    return word[0] if plain == word[0] else f"{word[0]} {plain}"


def _in_pairs(run: re.Match[str]) -> str:
    """東京都 becomes 東京 京都; a character that stands alone stays."""
    characters = run[0]
    pairs = [characters[place : place + 2] for place in range(max(1, len(characters) - 1))]
    return f" {' '.join(pairs)} "


def _with_ungrouped_form(number: re.Match[str]) -> str:
    return f"{number[0]} {_NO_DIGIT.sub('', number[0])}"


def row_of(text: Text) -> dict[str, Any]:
    """The parameters of `_ADD`: what a text gives its `IndexedText`, and both sides, whose terms are counted."""
    return {
        **text.columns(),
        "configuration": settings.TEXT_SEARCH_CONFIG,
        "text_hash": _known_as(text),
        "signature": trigram_filter(text.said, text.answered),
        "said": pieces(indexed_form(text.said)),
        "answered": pieces(indexed_form(text.answered)),
        "max_lexeme": MAX_LEXEME,
    }


def _flush_batch(owner: dict[str, Any]) -> int:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_START_TOTALS, owner)
            cursor.execute(_LOCK_TOTALS_IF_FREE, owner)
            if not cursor.rowcount:
                return 0
            cursor.execute(_FLUSH, owner)
            (texts,) = cursor.fetchone()
            return int(texts)
    except IntegrityError:
        # The person is deleted at this moment, and their terms with them.
        return 0


def _add_one(text: Text, place: Place) -> bool:
    """Nearly every such text is new: only one that is not costs a second look."""
    row = row_of(text)
    if _insert(row):
        return True
    known = IndexedText.objects.at(place)
    stale = known.other_than(content_hash=row["text_hash"], configuration=row["configuration"])
    return _delete(stale, place) and _insert(row)


def _add_changed(entry: Entry) -> set[int]:
    """Most chunks of a document are as they were: one look tells which are not."""
    known = IndexedText.objects.at(entry.place)
    kept = {
        index: (bytes(content_hash), configuration)
        for index, content_hash, configuration in known.values_list("chunk_index", "content_hash", "configuration")
    }
    wanted = {text.key.chunk_index: (_known_as(text), settings.TEXT_SEARCH_CONFIG) for text in entry.texts}
    stale = [index for index in kept if kept[index] != wanted.get(index)]
    if stale:
        _delete(known.filter(chunk_index__in=stale), entry.place)
    changed = {index for index in wanted if kept.get(index) != wanted[index]}
    for text in entry.texts:
        if text.key.chunk_index in changed:
            _insert(row_of(text))
    return changed


def _delete(texts: IndexedTextQuerySet, place: Place) -> bool:
    """Returns whether there were any. The totals are locked first, as they are for a flush."""
    with transaction.atomic(), connection.cursor() as cursor:
        parameters: dict[str, Any] = {"user_id": place.user_id, "corpus": place.corpus}
        cursor.execute(LOCK_TOTALS, parameters)
        parameters["ids"] = list(texts.values_list("pk", flat=True))
        if parameters["ids"]:
            cursor.execute(_DELETE_PENDING, parameters)
            parameters["pending"] = [text_id for (text_id,) in cursor.fetchall()]
            cursor.execute(_DELETE, parameters)
    return bool(parameters["ids"])


def _known_as(text: Text) -> bytes:
    said, answered = searchable(text.said), searchable(text.answered)
    return content_hash(f"{len(said)}:{said}{answered}")


def _insert(row: dict[str, Any]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_ADD, row)
        return bool(cursor.fetchone() == (1,))
