"""People who go on saving turns whatever happens, over HTTP as any client does: until each is acknowledged."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from evals import synthetic
from evals.reliability.product import Person

PATH = "/api/v1/intake/chat"
TIMEOUT_SECONDS = 60
# A client that is told to try again shortly.
PAUSE_SECONDS = 0.2
TURNS_IN_A_CONVERSATION = 8


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request; `failure` is empty for the one that was acknowledged."""

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
        parts = urlsplit(address)
        self._connection = HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
        self._person, self._words = person, words
        self._talk = _talk(seed)
        self._conversation: str | None = None
        self.saves: list[Save] = []

    def close(self) -> None:
        self._connection.close()

    def go_on(self, is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            save = self.save if len(self.saves) % TURNS_IN_A_CONVERSATION else self.save_anew
            save(f"{next(self._talk)} {{word}}")

    def save_anew(self, template: str) -> Save:
        """As `save`, in a new conversation."""
        self._conversation = None
        return self.save(template)

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
            status, events = self._post(saving.message)
        except (OSError, HTTPException) as error:
            self._connection.close()
            return Attempt(began, time.monotonic(), type(error).__name__)
        # Where the message went is known from the first event on, as to a browser: to try again is to go on there.
        self._conversation = events.get("turn", {}).get("conversationId", self._conversation)
        if done := events.get("done"):
            saving.place = done["conversationId"], done["turnNumber"]
            return Attempt(began, time.monotonic())
        failure = events["error"]["code"] if "error" in events else "stream cut off" if events else f"status {status}"
        return Attempt(began, time.monotonic(), failure)

    def _post(self, message: str) -> tuple[int, dict[str, Any]]:
        body = {"message": message, **({"conversation_id": self._conversation} if self._conversation else {})}
        headers = {"Authorization": f"Token {self._person.token}", "Content-Type": "application/json"}
        try:
            self._connection.request("POST", PATH, json.dumps(body), headers)
        except BrokenPipeError:
            # A kept connection that the server has closed meanwhile; every client opens another and says it there.
            self._connection.close()
            self._connection.request("POST", PATH, json.dumps(body), headers)
        response = self._connection.getresponse()
        answer = response.read().decode()
        return response.status, dict(_events(answer)) if response.status == 200 else {}  # noqa: PLR2004


def _talk(seed: int) -> Iterator[str]:
    """Messages without an end, each some 150 characters long."""
    while True:
        yield from (turn.user_message for turn in synthetic.turns(synthetic.AT_ONCE, seed=seed))
        seed += 1_000


def _events(answer: str) -> Iterator[tuple[str, Any]]:
    """The last of each kind is the one that counts."""
    for block in answer.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "event" in lines:
            yield lines["event"], json.loads(lines["data"])
