"""From a saved text to its postings: the database's own parser counts the words, and one statement stores them."""

from typing import Any

from django.conf import settings
from django.db import connection

from memory.models import IndexedText
from memory.signatures import signature
from memory.sources import Text, content_hash

# PostgreSQL refuses to find words in more than a megabyte, and a character takes up to four bytes.
MAX_CHARACTERS = 250_000
# A longer "word" is data rather than language, and would not fit an index entry in the end.
MAX_LEXEME = 255

_POST = """
WITH word AS (
    SELECT lexeme, sum(said)::int AS said, sum(answered)::int AS answered
      FROM (SELECT lexeme, cardinality(positions) AS said, 0 AS answered
              FROM unnest(to_tsvector(%(configuration)s::regconfig, %(said)s))
            UNION ALL
            SELECT lexeme, 0, cardinality(positions)
              FROM unnest(to_tsvector(%(configuration)s::regconfig, %(answered)s))) AS side
     WHERE length(lexeme) <= %(max_lexeme)s
     GROUP BY lexeme
), indexed AS (
    INSERT INTO indexed_texts
           (user_id, corpus, source_id, chunk_index, said_at, configuration, content_hash, signature,
            said_length, answered_length)
    SELECT %(user_id)s, %(corpus)s, %(source_id)s, %(chunk_index)s, %(said_at)s, %(configuration)s, %(content_hash)s,
           %(signature)s::varbit, coalesce(sum(said), 0), coalesce(sum(answered), 0)
      FROM word
        ON CONFLICT DO NOTHING
    RETURNING *
), posted AS (
    INSERT INTO postings (user_id, corpus, text_id, said_length, answered_length, lexeme, said, answered)
    SELECT user_id, corpus, id, said_length, answered_length, lexeme, said, answered
      FROM indexed CROSS JOIN word
)
SELECT count(*) FROM indexed
"""


def post(text: Text) -> bool:
    """Make the postings of a text match it; returns whether they did not. Must run in the transaction that saves it."""
    configuration = settings.TEXT_SEARCH_CONFIG
    said, answered = searchable(text.said), searchable(text.answered)
    known_as = content_hash(f"{len(said)}:{said}{answered}")
    row = {
        "user_id": text.user_id,
        "corpus": text.key.corpus,
        "source_id": text.key.source_id,
        "chunk_index": text.key.chunk_index,
        "said_at": text.said_at,
        "configuration": configuration,
        "content_hash": known_as,
        "signature": signature(text.said, text.answered),
        "said": said,
        "answered": answered,
        "max_lexeme": MAX_LEXEME,
    }
    if _insert(row):
        return True
    # Nearly every text is new: only one that is not costs a second look.
    known = IndexedText.objects.of_source(text.user_id, text.key)
    stale, _ = known.other_than(content_hash=known_as, configuration=configuration).delete()
    return stale > 0 and _insert(row)


def searchable(text: str) -> str:
    """As much of a text as the parser takes, without the one character that PostgreSQL has no place for."""
    return text[:MAX_CHARACTERS].replace("\0", " ")


def _insert(row: dict[str, Any]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_POST, row)
        return bool(cursor.fetchone() == (1,))
