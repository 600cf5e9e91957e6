"""Answers that are written word by word, and readers who follow them: a fake model, and clients that come back.

`chaos` kills web processes while both are at it.
"""

import asyncio
import re
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from itertools import cycle
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from evals.client import Client
from evals.reliability.product import CHAT
from testing.model_server import chunk
from testing.sse_client import Event

# A client that has lost the line tries again so soon.
PAUSE_SECONDS = 0.3
REST = "That was the rest."
_QUESTION = re.compile(r"Number (\d+)\b")


def question(number: int) -> dict[str, Any]:
    """The body of a question whose answer no other question has."""
    return {"message": f"Number {number}"}


def whole_answer(number: int, words: int) -> str:
    return "".join(_words(number, words))


def _words(number: int, words: int) -> list[str]:
    return [f"{number}.{word} " for word in range(words)]


class NumberingModel:
    """Answers `Number N` by so many words that no other answer has, `pause` seconds apart, and anything else by `REST`.

    It notes when it wrote which word, by a monotonic clock.
    """

    def __init__(self, *, words: int, pause: float) -> None:
        self._count, self._pause = words, pause
        self._written: dict[int, list[tuple[float, str]]] = defaultdict(list)
        self.application = Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])

    def written(self, number: int, *, before: float) -> str:
        """The part of an answer that was written before a moment."""
        return "".join(word for at, word in self._written[number] if at < before)

    def lost_seconds(self, number: int, kept: str, *, killed_at: float) -> float:
        """How long before the kill the first word was written that was not kept whole; 0 where nothing is missing."""
        length = 0
        for at, word in self._written[number]:
            length += len(word)
            # A text that is kept may have lost its last space.
            if length > len(kept) + 1 or not kept.startswith(word.rstrip(), length - len(word)):
                return max(0.0, killed_at - at)
        return 0.0

    async def _complete(self, request: Request) -> StreamingResponse:
        asked = _QUESTION.match((await request.json())["messages"][-1]["content"])
        stream = self._rest() if asked is None else self._answer(int(asked[1]))
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _answer(self, number: int) -> AsyncIterator[bytes]:
        for word in _words(number, self._count):
            yield chunk({"role": "assistant", "content": word})
            self._written[number].append((time.monotonic(), word))
            await asyncio.sleep(self._pause)
        yield chunk(finish_reason="stop")
        yield b"data: [DONE]\n\n"

    async def _rest(self) -> AsyncIterator[bytes]:
        yield chunk({"role": "assistant", "content": REST})
        yield chunk(finish_reason="stop")
        yield b"data: [DONE]\n\n"


class AnswerReader:
    """Reads one answer to its end: from the first address, and, when the line breaks, on from the next one.

    `asks` is the question; without one the answer to the turn `turn_id` is read. `leaves`: hangs up after the first
    word and comes back. The first event and the first word have the milliseconds that they took.
    """

    def __init__(
        self,
        addresses: Iterator[str] | list[str],
        headers: dict[str, str],
        *,
        asks: dict[str, Any] | None = None,
        turn_id: int | None = None,
        leaves: bool = False,
    ) -> None:
        self._addresses, self._headers = cycle(addresses), headers
        self._asks, self._leaves, self.turn_id = asks, leaves, turn_id
        self._key = secrets.token_hex()
        self._last_id: str | None = None
        self._is_left = False
        self.is_reading = False
        self._began = 0.0
        self._thread = threading.Thread(target=self.read, daemon=True)
        self.has_begun = threading.Event()
        self.place: dict[str, Any] = {}
        self.text = ""
        self.lost_lines = 0
        self.first_event_ms: float | None = None
        self.first_word_ms: float | None = None
        self.ending: Event | None = None
        self.ended_at = 0.0

    def start(self) -> Self:
        """Read in a thread of its own, until the end or until it is left."""
        self._thread.start()
        return self

    def leave(self, *, at: float) -> None:
        """Leave it at this moment of the monotonic clock, unless it has ended before."""
        self._thread.join(max(0.0, at - time.monotonic()))
        self._is_left = True

    def read(self, *, tries: float = float("inf")) -> None:
        self._began, self.is_reading = time.perf_counter(), True
        while self.ending is None and not self._is_left and tries > 0:
            try:
                self._read(next(self._addresses), may_ask_again=tries > 1)
            except OSError:
                self.lost_lines += 1
            tries -= 1
            if self.ending is None and tries > 0:
                time.sleep(PAUSE_SECONDS)
        self.is_reading = False

    def _read(self, address: str, *, may_ask_again: bool) -> None:
        with Client(address, self._headers) as client:
            if self.turn_id is None:
                # As the page sends one: a question that is asked again is one question.
                key = {"Idempotency-Key": self._key} if may_ask_again else {}
                events = client.events("POST", CHAT, self._asks, key)
            else:
                at = {"Last-Event-ID": self._last_id} if self._last_id else {}
                events = client.events("GET", f"/api/v1/intake/turns/{self.turn_id}/events", None, at)
            for event in events:
                self._hear(event)
                if self.ending is not None:
                    return
                if self._leaves and event.name == "delta":
                    self._leaves = False
                    return
            raise ConnectionError("The stream ended before the answer did.")

    def _hear(self, event: Event) -> None:
        taken = 1000 * (time.perf_counter() - self._began)
        if self.first_event_ms is None:
            self.first_event_ms = taken
        self._last_id = event.id or self._last_id
        if event.name == "turn":
            self.text, self.turn_id, self.place = "", event.data["turnId"], event.data
            self.has_begun.set()
        elif event.name == "delta":
            if self.first_word_ms is None:
                self.first_word_ms = taken
            self.text += event.data["text"]
        elif event.name in ("done", "error"):
            self.ended_at, self.ending = time.monotonic(), event
