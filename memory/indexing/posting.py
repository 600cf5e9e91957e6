"""Puts the words of what was saved among the postings, many texts at a time, and counts the texts.

Until then a search reads them where they were saved. Repeating it does nothing, and several workers share the work.
"""

from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.utils import timezone

TEXTS = 200

_WHOSE = "SELECT DISTINCT user_id, corpus FROM unposted_words ORDER BY user_id, corpus"

# Who holds a person's totals may take words of theirs; so whoever deletes waits for a worker, and never in a circle.
_COUNTED = """
INSERT INTO text_totals (user_id, corpus, texts, said_length, answered_length)
VALUES (%(user_id)s, %(corpus)s, 0, 0, 0)
    ON CONFLICT DO NOTHING
"""
_HOLD = """
SELECT FROM text_totals WHERE user_id = %(user_id)s AND corpus = %(corpus)s FOR UPDATE SKIP LOCKED
"""

# What somebody is deleting just now is theirs. Whoever deletes a text waits for what is being posted of it, and then
# takes the postings along (the trigger on `indexed_texts`), so that no word outlives its text.
_POST = """
WITH taken AS (
    DELETE FROM unposted_words
     WHERE text_id IN (SELECT text_id
                         FROM unposted_words
                        WHERE user_id = %(user_id)s AND corpus = %(corpus)s
                        ORDER BY text_id
                        LIMIT %(texts)s
                          FOR UPDATE SKIP LOCKED)
    RETURNING *
), posted AS (
    INSERT INTO postings (user_id, corpus, text_id, said_length, answered_length, lexeme, said, answered)
    SELECT user_id, corpus, text_id, said_length, answered_length, word.lexeme, sum(word.said), sum(word.answered)
      FROM taken CROSS JOIN LATERAL unnest(lexemes, taken.said, taken.answered) AS word(lexeme, said, answered)
     GROUP BY user_id, corpus, text_id, said_length, answered_length, word.lexeme
     ORDER BY word.lexeme  -- neighbours in the index
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


def post_words(*, until: datetime | None = None) -> int:
    """Post what waits, until nothing does or the time is up; returns how many texts that were."""
    posted = 0
    with connection.cursor() as cursor:
        cursor.execute(_WHOSE)
        whose = cursor.fetchall()
    for user_id, corpus in whose:
        while texts := _post_some({"user_id": user_id, "corpus": corpus, "texts": TEXTS}):
            posted += texts
            if until is not None and timezone.now() >= until:
                return posted
    return posted


def _post_some(whose: dict[str, Any]) -> int:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_COUNTED, whose)
            cursor.execute(_HOLD, whose)
            if not cursor.rowcount:
                return 0
            cursor.execute(_POST, whose)
            (texts,) = cursor.fetchone()
            return int(texts)
    except IntegrityError:
        # The person is deleted at this moment, and their words with them.
        return 0
