"""People who go on saving turns whatever happens, over HTTP as any client does: until each is acknowledged."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from evals import synthetic
from evals.client import Client
from evals.reliability.product import CHAT, Person

# A client that is told to try again shortly.
PAUSE_SECONDS = 0.2
TURNS_IN_A_CONVERSATION = 8


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
