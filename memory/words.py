"""From a saved text to its words: the database's own parser counts them, and one statement stores them in one row.

A hundred postings are a hundred places in a large index, too many to write while somebody waits. So a text's words are
kept together at first, where a search looks as well, and a worker posts them (memory.indexing.posting).
"""

from typing import Any

from django.conf import settings

from core.db.statements import Answer, ask, fetch
from memory.models import IndexedText
from memory.signatures import signature
from memory.sources import Entry, Place, Text, content_hash

# PostgreSQL refuses to find words in more than a megabyte, and a character takes up to four bytes.
MAX_CHARACTERS = 250_000
# A longer "word" is data rather than language, and would not fit an index entry in the end.
MAX_LEXEME = 255

# Three of a statement's WITH queries; `indexed` has a row if the text was not there. A word of both sides is kept once
# for each: to bring them together takes longer than all the rest that is done with them here.
_KEEP = """
word AS (
    SELECT coalesce(array_agg(lexeme), '{{}}') AS lexemes,
           coalesce(array_agg(said), '{{}}') AS said, coalesce(sum(said), 0) AS said_length,
           coalesce(array_agg(answered), '{{}}') AS answered, coalesce(sum(answered), 0) AS answered_length
      FROM (SELECT lexeme, cardinality(positions) AS said, 0 AS answered
              FROM unnest(to_tsvector(%(configuration)s::text::regconfig, %(said)s))
            UNION ALL
            SELECT lexeme, 0, cardinality(positions)
              FROM unnest(to_tsvector(%(configuration)s::text::regconfig, %(answered)s))) AS side
     WHERE length(lexeme) <= %(max_lexeme)s
), indexed AS (
    INSERT INTO indexed_texts
           (user_id, corpus, source_id, chunk_index, said_at, configuration, content_hash, signature,
            said_length, answered_length)
    SELECT %(user_id)s, %(corpus)s, %(source_id)s, %(chunk_index)s, %(said_at)s, %(configuration)s, %(text_hash)s,
           %(signature)s::varbit, said_length, answered_length
      FROM word {condition}
        ON CONFLICT DO NOTHING
    RETURNING *
), kept AS (
    INSERT INTO unposted_words (text_id, user_id, corpus, said_length, answered_length, lexemes, said, answered)
    SELECT id, user_id, corpus, indexed.said_length, indexed.answered_length, lexemes, said, answered
      FROM indexed
     CROSS JOIN word
)
"""
KEEP = _KEEP.format(condition="")
_POST = f"WITH {KEEP} SELECT count(*) FROM indexed"  # noqa: S608 - written here
# A turn has its number once it is stored, which is what the transaction is at.
_OF_THE_LATEST_TURN = """
     WHERE EXISTS (SELECT
                     FROM intake_conversations
                    WHERE id = %(source_id)s AND user_id = %(user_id)s AND turn_count = %(chunk_index)s)
"""
_POST_LATEST_TURN = f"WITH {_KEEP.format(condition=_OF_THE_LATEST_TURN)} SELECT count(*) FROM indexed"  # noqa: S608


def ask_to_post_latest_turn(text: Text) -> Answer:
    """Have the words of a turn kept that is just being stored: a row with 1.

    With 0 if it is not its conversation's latest after all, or its words were there.
    """
    return ask(_POST_LATEST_TURN, row_of(text))


def post(entry: Entry) -> set[int]:
    """Make the words at a place match its texts; returns the chunks whose did not.

    Must run in the transaction that saves the texts.
    """
    if entry.place.chunk_index is None:
        return _post_changed(entry)
    (text,) = entry.texts
    return {text.key.chunk_index} if _post_one(text, entry.place) else set()


def _post_one(text: Text, place: Place) -> bool:
    """Nearly every such text is new: only one that is not costs a second look."""
    row = row_of(text)
    if _insert(row):
        return True
    known = IndexedText.objects.at(place)
    stale, _ = known.other_than(content_hash=row["text_hash"], configuration=row["configuration"]).delete()
    return stale > 0 and _insert(row)


def _post_changed(entry: Entry) -> set[int]:
    """Most chunks of a document are as they were: one look tells which are not."""
    known = IndexedText.objects.at(entry.place)
    kept = {
        index: (bytes(content_hash), configuration)
        for index, content_hash, configuration in known.values_list("chunk_index", "content_hash", "configuration")
    }
    wanted = {text.key.chunk_index: (_known_as(text), settings.TEXT_SEARCH_CONFIG) for text in entry.texts}
    stale = [index for index in kept if kept[index] != wanted.get(index)]
    if stale:
        known.filter(chunk_index__in=stale).delete()
    changed = {index for index in wanted if kept.get(index) != wanted[index]}
    for text in entry.texts:
        if text.key.chunk_index in changed:
            _insert(row_of(text))
    return changed


def searchable(text: str) -> str:
    """As much of a text as the parser takes, without the one character that PostgreSQL has no place for."""
    return text[:MAX_CHARACTERS].replace("\0", " ")


def row_of(text: Text) -> dict[str, Any]:
    """The parameters of `KEEP`: what a text gives its `IndexedText`, and both sides, whose words are to be counted."""
    return {
        **text.columns(),
        "configuration": settings.TEXT_SEARCH_CONFIG,
        "text_hash": _known_as(text),
        "signature": signature(text.said, text.answered),
        "said": searchable(text.said),
        "answered": searchable(text.answered),
        "max_lexeme": MAX_LEXEME,
    }


def _known_as(text: Text) -> bytes:
    said, answered = searchable(text.said), searchable(text.answered)
    return content_hash(f"{len(said)}:{said}{answered}")


def _insert(row: dict[str, Any]) -> bool:
    return fetch(_POST, row) == [(1,)]
