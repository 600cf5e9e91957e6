"""Looks for saved turns: in the database, and through the search API.

The database is asked with the eyes of a superuser. The searches are asked with each person's own token: by the words
with `search_history`, which finds every literal match in a message; and by their vectors with
`search_chat_history`, where the message itself is the question.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from django.utils import timezone

from core.isolation.acting import acting_as_staff
from evals.client import Client
from evals.reliability.saving import Save
from memory.health import index_health

# A turn's unique word, and whether the index has all of it: the word in the text's segment, and every part's vector.
_TURNS = """
SELECT said.word, said.conversation_id::text, said.turn_number, said.status,
       EXISTS (SELECT
                 FROM indexed_texts AS text
                 JOIN term_segments AS segment ON segment.user_id = text.user_id AND text.id = ANY(segment.text_ids)
                CROSS JOIN LATERAL (SELECT lexemes
                                      FROM term_blocks
                                     WHERE user_id = segment.user_id AND segment_id = segment.id
                                       AND first_lexeme <= said.word
                                     ORDER BY first_lexeme DESC
                                     LIMIT 1) AS block
                WHERE text.user_id = said.user_id AND text.corpus = 'chat' AND text.source_id = said.conversation_id
                  AND text.chunk_index = said.turn_number AND said.word = ANY(block.lexemes)),
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

LONGEST_QUERY = 500


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


def rows_shown_to_staff() -> Any:
    """Runs in a process of the product's: how many rows the admin's health page calls quarantined."""
    with acting_as_staff():
        return index_health(now=timezone.now()).quarantined.value


def not_found(address: str, saves: Sequence[Save]) -> list[str]:
    """The words of those that either search misses."""
    return [save.word for save in saves if not _is_found(address, save)]


def _is_found(address: str, save: Save) -> bool:
    by_words = {"query": save.word, "scope": "sessions", "max_results": 50}
    by_meaning = {"query": save.message[:LONGEST_QUERY], "limit": 20, "mode": "semantic"}
    with Client(address, save.person.headers) as client:
        return all(
            save.place in _places(client, tool, body)
            for tool, body in {"search_history": by_words, "search_chat_history": by_meaning}.items()
        )


def _places(client: Client, tool: str, body: dict[str, Any]) -> set[tuple[str, int]]:
    answer = client.ask("POST", f"/api/v1/tools/{tool}/", body)
    if not answer.is_ok:
        raise RuntimeError(f"{tool} was answered {answer}")
    return {(result.get("conversationId"), result.get("turnNumber")) for result in answer.data["results"]}
