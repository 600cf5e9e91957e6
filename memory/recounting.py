"""Counts a person's totals anew where texts were deleted behind the application's back."""

from django.db import connection, transaction

from memory.terms import LOCK_TOTALS

# The true totals of all users, and then of one.
_MISCOUNTED = """
SELECT user_id, corpus
  FROM text_totals AS totals
  LEFT JOIN (SELECT user_id, corpus, count(*) AS texts, sum(said_length) AS said_length,
                    sum(answered_length) AS answered_length
               FROM indexed_texts AS text
              WHERE NOT EXISTS (SELECT FROM unposted_words WHERE user_id = text.user_id AND text_id = text.id)
              GROUP BY user_id, corpus) AS counted USING (user_id, corpus)
 WHERE (totals.texts, totals.said_length, totals.answered_length)
       <> (coalesce(counted.texts, 0), coalesce(counted.said_length, 0), coalesce(counted.answered_length, 0))
"""
_RECOUNT = """
UPDATE text_totals
   SET (texts, said_length, answered_length) =
       (SELECT count(*), coalesce(sum(said_length), 0), coalesce(sum(answered_length), 0)
          FROM indexed_texts AS text
         WHERE user_id = %(user_id)s AND corpus = %(corpus)s
           AND NOT EXISTS (SELECT FROM unposted_words WHERE user_id = %(user_id)s AND text_id = text.id))
 WHERE user_id = %(user_id)s AND corpus = %(corpus)s
"""


def sweep() -> int:
    """Returns whose totals were wrong: how many people's, by corpus."""
    with connection.cursor() as cursor:
        cursor.execute(_MISCOUNTED)
        miscounted = cursor.fetchall()
        for user_id, corpus in miscounted:
            owner = {"user_id": user_id, "corpus": corpus}
            with transaction.atomic():
                cursor.execute(LOCK_TOTALS, owner)
                cursor.execute(_RECOUNT, owner)
    return len(miscounted)
