"""What the database has of what was said: looked up by the words, with the eyes of a superuser."""

from dataclasses import dataclass
from typing import Any

import psycopg

# A turn's unique word, and whether the index has all of it: the word among the postings, and every part's vector.
_TURNS = """
SELECT said.word, said.conversation_id::text, said.turn_number, said.status,
       EXISTS (SELECT FROM indexed_texts AS text JOIN postings ON postings.text_id = text.id
                WHERE text.user_id = said.user_id AND text.corpus = 'chat' AND text.source_id = said.conversation_id
                  AND text.chunk_index = said.turn_number AND postings.user_id = said.user_id
                  AND postings.lexeme = said.word),
       parts.made, parts.waiting, parts.quarantined
  FROM (SELECT *, substring(user_message FROM 'q[0-9]{7}') AS word FROM intake_conversation_turns) AS said
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE vector IS NOT NULL) AS made,
              count(*) FILTER (WHERE vector IS NULL AND quarantined_at IS NULL) AS waiting,
              count(*) FILTER (WHERE quarantined_at IS NOT NULL) AS quarantined
         FROM embeddings
        WHERE user_id = said.user_id AND corpus = 'chat' AND source_id = said.conversation_id
          AND chunk_index = said.turn_number) AS parts
 WHERE said.word IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """One turn as the database has it."""

    word: str
    conversation_id: str
    turn_number: int
    status: str
    has_word: bool
    vectors: int
    waiting: int
    quarantined: int

    @property
    def place(self) -> tuple[str, int]:
        return self.conversation_id, self.turn_number

    @property
    def is_searchable(self) -> bool:
        return self.has_word and self.vectors > 0 and not self.waiting and not self.quarantined


def kept_turns(connection: psycopg.Connection[Any]) -> list[Kept]:
    return [Kept(*row) for row in connection.execute(_TURNS).fetchall()]
