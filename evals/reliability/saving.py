"""People who save turns over HTTP whatever happens, until each is acknowledged; and where the turns are then found.

The database is asked with the eyes of a superuser. The searches are asked with each person's own token: by the words
with `search_history`, which finds every literal match in a message; and by their vectors with
`search_chat_history`, where the message itself is the question.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import psycopg
from django.utils import timezone

from core.isolation.acting import acting_as_staff
from evals import synthetic
from evals.client import Client
from evals.reliability.product import CHAT, Person
from memory.index.health import index_health

# A client that is told to try again shortly.
PAUSE_SECONDS = 0.2
TURNS_IN_A_CONVERSATION = 8
LONGEST_QUERY = 500

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


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request; `failure` is empty for the one that was acknowledged. Moments of a monotonic clock."""

    began: float
    ended: float
    failure: str = ""

    @property
    def milliseconds(self) -> float:
        return 1000 * (self.ended - self.began)


@dataclass(slots=True)
class Save:
    """One turn by the word that no other has, from its first attempt to its acknowledgement."""

    person: Person
    word: str
    message: str
    attempts: list[Attempt] = field(default_factory=list)
    place: tuple[str, int] | None = None

    @property
    def is_acknowledged(self) -> bool:
        return self.place is not None


class Words:
    """A number in letters' clothing, so that text search takes it as one word and leaves it as it is."""

    def __init__(self) -> None:
        self._numbers: Iterator[int] = count(1)
        self._lock = threading.Lock()

    def new(self) -> str:
        with self._lock:
            return f"q{next(self._numbers):07}"


class Saver:
    """One person at one screen: a turn after the other, now and then in a new conversation."""

    def __init__(self, address: str, person: Person, words: Words, *, seed: int) -> None:
        self._client = Client(address, person.headers)
        self._person, self._words = person, words
        self._talk = _talk(seed)
        self._conversation: str | None = None
        self.saves: list[Save] = []

    def close(self) -> None:
        self._client.close()

    def go_on(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            if len(self.saves) % TURNS_IN_A_CONVERSATION == 0:
                self._conversation = None
            self.save(f"{next(self._talk)} {{word}}")

    def save(self, template: str) -> Save:
        """Say something with a new word for `{word}`, as often as it takes."""
        word = self._words.new()
        saving = Save(self._person, word, template.format(word=word))
        self.saves.append(saving)
        while not saving.is_acknowledged:
            if saving.attempts:
                time.sleep(PAUSE_SECONDS)
            saving.attempts.append(self._attempt(saving))
        return saving

    def _attempt(self, saving: Save) -> Attempt:
        began = time.monotonic()
        try:
            body = {
                "message": saving.message,
                **({"conversation_id": self._conversation} if self._conversation else {}),
            }
            answer = self._client.ask("POST", CHAT, body)
        except OSError as error:
            return Attempt(began, time.monotonic(), type(error).__name__)
        events = {event.name: event.data for event in answer.events} if answer.is_ok else {}
        # Where the message went is known from the first event on, as to a browser: to try again is to go on there.
        self._conversation = events.get("turn", {}).get("conversationId", self._conversation)
        if done := events.get("done"):
            saving.place = done["conversationId"], done["turnNumber"]
            return Attempt(began, time.monotonic())
        if "error" in events:
            return Attempt(began, time.monotonic(), events["error"]["code"])
        return Attempt(began, time.monotonic(), "stream cut off" if events else f"status {answer.status}")


def _talk(seed: int) -> Iterator[str]:
    """Messages without an end, each some 150 characters long."""
    while True:
        yield from (turn.user_message for turn in synthetic.turns(synthetic.AT_ONCE, seed=seed))
        seed += 1_000


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
