"""`manage.py chaos`, second part: web processes are killed in mid-answer, and what was written is looked for.

1. Two web processes serve one database and one Redis. Each writes half of the answers; the model notes when it wrote
   which word. Every answer has its asker and a reader at either process.
2. One of the two is killed, and started again as by a supervisor. A reader who loses the line goes on from the last
   event at the next address of theirs, as often as it takes.
3. When all turns are closed, what was kept is compared with what the model had written at the moment of the kill, and
   every answer that was killed is continued at the other process.
"""

import asyncio
import json
import random
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psycopg
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from core.testing.model_server import chunk
from core.testing.serving import serving
from core.testing.sse_client import read_events
from evals.datasets.loading import Report
from evals.processes import answers
from evals.reliability.faults import kill
from evals.reliability.product import READY_SECONDS, Person, Product, running_product
from evals.tables import judged

WEBS = ("web", "web 2")
PEOPLE = 8
TIMEOUT_SECONDS = 60
LOOK_SECONDS = 0.1
# A client that has lost the line tries again so soon.
PAUSE_SECONDS = 0.3
# Answers are killed so many seconds after the last of them has begun.
KILLED_AFTER = (1.5, 3.0)
LOST_AT_MOST = 1.0
REST = "That was the rest."
# What a turn's silence and its lease may take, the sweep, and a machine that has other work.
SWEEP_SECONDS = 5
SPARE_SECONDS = 5

_TURNS = "SELECT id, status, assistant_message FROM intake_conversation_turns WHERE id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class AnswersPlan:
    """`words` of each answer, `pause` seconds apart; `lease` in seconds."""

    answers: int
    kills: int
    seed: int
    words: int = 150
    pause: float = 0.1
    lease: int = 10
    logs: Path | None = None

    @property
    def closed_within(self) -> float:
        return self.lease + SWEEP_SECONDS + SPARE_SECONDS


class KeptAnswer(NamedTuple):
    """A turn in the database."""

    status: str
    text: str


class NotingModel:
    """Answers `Number N` with words that no other answer has, and notes when each was written; goes on with `REST`."""

    def __init__(self, plan: AnswersPlan) -> None:
        self._plan = plan
        self._written: dict[int, list[tuple[float, str]]] = defaultdict(list)
        self.application = Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])

    def whole(self, number: int) -> str:
        return "".join(self._words(number))

    def written(self, number: int, *, before: float) -> str:
        """What of an answer was written before a moment of the monotonic clock."""
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

    def _words(self, number: int) -> list[str]:
        return [f"{number}.{word} " for word in range(self._plan.words)]

    async def _complete(self, request: Request) -> StreamingResponse:
        asked = (await request.json())["messages"][-1]["content"].split()
        number = int(asked[1]) if asked[0] == "Number" else None
        return StreamingResponse(self._stream(number), media_type="text/event-stream")

    async def _stream(self, number: int | None) -> AsyncIterator[bytes]:
        if number is None:
            yield chunk({"role": "assistant", "content": REST})
        for word in self._words(number) if number is not None else ():
            yield chunk({"role": "assistant", "content": word})
            self._written[number or 0].append((time.monotonic(), word))
            await asyncio.sleep(self._plan.pause)
        yield chunk(finish_reason="stop")
        yield b"data: [DONE]\n\n"


class StreamReader(threading.Thread):
    """Reads one answer to its end: from the first address, and, when the line breaks, on from the next one.

    `body` asks the question; without one the answer to the turn `turn_id` is read.
    """

    def __init__(
        self, person: Person, addresses: list[str], *, body: dict[str, Any] | None = None, turn_id: int | None = None
    ) -> None:
        super().__init__(daemon=True)
        self._person, self._addresses = person, cycle(addresses)
        self._body, self.turn_id = body, turn_id
        # The page sends one as well: a question that is asked again is one question.
        self._key = secrets.token_hex()
        self._last_id: str | None = None
        self._is_left = False
        self.place: dict[str, Any] = {}
        self.text = ""
        self.lost_lines = 0
        self.ending: dict[str, Any] | None = None
        self.ended_at = 0.0
        self.start()

    def leave(self) -> None:
        self._is_left = True

    def run(self) -> None:
        while self.ending is None and not self._is_left:
            with suppress(OSError, HTTPException):
                self._read(next(self._addresses))
            if self.ending is None:
                self.lost_lines += 1
                time.sleep(PAUSE_SECONDS)

    def _read(self, address: str) -> None:
        parts = urlsplit(address)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
        headers = {"Authorization": f"Token {self._person.token}", "Content-Type": "application/json"}
        try:
            if self.turn_id is None:
                connection.request(
                    "POST", "/api/v1/intake/chat", json.dumps(self._body), headers | {"Idempotency-Key": self._key}
                )
            else:
                at = {"Last-Event-ID": self._last_id} if self._last_id else {}
                connection.request("GET", f"/api/v1/intake/turns/{self.turn_id}/events", headers=headers | at)
            response = connection.getresponse()
            if response.status != 200:  # noqa: PLR2004
                raise HTTPException(response.read())
            self._hear(response)
        finally:
            connection.close()

    def _hear(self, lines: Any) -> None:
        for event in read_events(line.decode().rstrip("\n") for line in lines):
            if event.name == "turn":
                self.text, self.turn_id, self.place = "", event.data["turnId"], event.data
            self.text += event.data["text"] if event.name == "delta" else ""
            self._last_id = event.id or self._last_id
            if event.name in ("done", "error"):
                self.ended_at = time.monotonic()
                self.ending = event.data
                return


@dataclass(slots=True)
class Asked:
    """One answer with its readers; the first of them asked for it."""

    number: int
    web: str
    person: Person
    readers: list[StreamReader]

    @property
    def turn_id(self) -> int:
        return self.readers[0].turn_id or 0


@dataclass(slots=True)
class AnswersOutcome:
    """Characters, and seconds after the kill; `wrong`: answers of which a reader heard anything else than was kept."""

    killed: int = 0
    written: int = 0
    kept: int = 0
    most_lost_seconds: float = 0.0
    closed_after: list[float] = field(default_factory=list)
    unclosed: int = 0
    others: int = 0
    others_whole: int = 0
    readers: int = 0
    lost_lines: int = 0
    # At the other process, and at the killed one when it was back.
    heard_after: list[float] = field(default_factory=list)
    heard_there_after: list[float] = field(default_factory=list)
    unended: int = 0
    wrong: list[int] = field(default_factory=list)
    continued: int = 0

    def checks(self, plan: AnswersPlan) -> list[tuple[str, str, bool, str]]:
        """Each figure: its name, its value, whether it is as it must be, and what that is."""
        share = f"{self.kept:,} of {self.written:,} characters"
        at_most = f"at most {plan.closed_within:g} s"
        return [
            ("answers killed in mid-answer", f"{self.killed:,}", self.killed > 0, "some"),
            ("kept of what was written", share, 0 < self.kept <= self.written, "most of it"),
            (
                "lost of what was written, at most",
                f"the last {self.most_lost_seconds:.2f} s",
                self.most_lost_seconds <= LOST_AT_MOST,
                f"{LOST_AT_MOST:g} s",
            ),
            (
                "closed as interrupted (p50 / max)",
                _spread(self.closed_after),
                not self.unclosed and max(self.closed_after, default=0) <= plan.closed_within,
                at_most,
            ),
            (
                "readers at the other process heard of it",
                _spread(self.heard_after),
                max(self.heard_after, default=0) <= plan.closed_within + SPARE_SECONDS,
                f"at most {plan.closed_within + SPARE_SECONDS:g} s",
            ),
            (
                "those who waited for the killed one",
                f"{_spread(self.heard_there_after)}; without an end: {self.unended:,}",
                not self.unended,
                "none without",
            ),
            ("lines lost by readers", f"{self.lost_lines:,} by {self.readers:,}", self.lost_lines > 0, "some"),
            ("answers mixed up, or read in part", f"{len(self.wrong):,}", not self.wrong, "none"),
            ("continued", f"{self.continued:,}", self.continued == self.killed, f"{self.killed:,}"),
            (
                "whole, since they were not killed",
                f"{self.others_whole:,}",
                self.others_whole == self.others,
                f"{self.others:,}",
            ),
        ]

    def table(self, plan: AnswersPlan) -> list[tuple[str, str]]:
        return [(name, judged(value, holds, must)) for name, value, holds, must in self.checks(plan)]

    def faults_found(self, plan: AnswersPlan) -> list[str]:
        """Each violation as a sentence; empty when all is well."""
        return [f"{name}: {value}, must be {must}." for name, value, holds, must in self.checks(plan) if not holds]


def run(plan: AnswersPlan, report: Report) -> AnswersOutcome:
    model, outcome, dice = NotingModel(plan), AnswersOutcome(), random.Random(plan.seed)  # noqa: S311
    report("Starting a product of its own, with two web processes.")
    with serving(model.application) as address:
        extra = {
            "LLM_MODEL": "fake",
            "LLM_BASE_URL": f"{address}/v1",
            "CHAT_TITLES": "0",
            "ANSWER_LEASE_SECONDS": str(plan.lease),
        }
        with running_product(extra=extra, logs=plan.logs, webs=WEBS) as product:
            people = product.people(PEOPLE)
            with product.servers.connect_as_superuser() as connection:
                for turn in range(plan.kills):
                    victim = WEBS[turn % len(WEBS)]
                    report(f"Kill {turn + 1} of {plan.kills}: {victim}, with {plan.answers} answers.")
                    numbers = range(turn * plan.answers, (turn + 1) * plan.answers)
                    asked = _ask(product, numbers, people)
                    strike = Strike(plan, product, connection, model, victim, asked)
                    strike.kill(after=dice.uniform(*KILLED_AFTER))
                    strike.wait_for_ends()
                    strike.compare(outcome)
                    strike.go_on(outcome)
    return outcome


def _ask(product: Product, numbers: Sequence[int], people: list[Person]) -> list[Asked]:
    """Half of the answers at each process, all at once, and then a reader of each answer at both."""
    askers = []
    for number in numbers:
        web, other = (WEBS[(number + place) % len(WEBS)] for place in range(len(WEBS)))
        places = [product.addresses[web], product.addresses[other]]
        person = people[number % len(people)]
        asker = StreamReader(person, places, body={"message": f"Number {number}"})
        askers.append((Asked(number, web, person, [asker]), places))
    asked = [each for each, _ in askers]
    _wait_until(lambda: all(each.turn_id for each in asked), TIMEOUT_SECONDS, "Not every question is taken.")
    for each, places in askers:
        each.readers += [StreamReader(each.person, [place], turn_id=each.turn_id) for place in places]
    return asked


@dataclass(slots=True)
class Strike:
    """One kill, and the answers that were being written. Moments are those of the monotonic clock."""

    plan: AnswersPlan
    product: Product
    connection: psycopg.Connection[Any]
    model: NotingModel
    victim: str
    asked: list[Asked]
    killed_at: float = 0.0
    closed_at: dict[int, float] = field(default_factory=dict)

    def kill(self, *, after: float) -> None:
        """So many seconds after every reader has heard something."""
        readers = [reader for each in self.asked for reader in each.readers]
        _wait_until(
            lambda: all(reader.text for reader in readers), TIMEOUT_SECONDS, "Not every reader hears an answer."
        )
        time.sleep(after)
        self.killed_at = time.monotonic()
        kill(self.product.programs[self.victim].family())

    def wait_for_ends(self) -> None:
        """Until all turns are closed and all readers have heard it, or should have."""
        longest = self.killed_at + max(self.plan.closed_within, self.plan.words * self.plan.pause) + SPARE_SECONDS
        while len(self.closed_at) < len(self.asked) and time.monotonic() < longest:
            for turn_id, turn in _kept(self.connection, self.asked).items():
                if turn.status != "streaming":
                    self.closed_at.setdefault(turn_id, time.monotonic())
            time.sleep(LOOK_SECONDS)
        # A machine with other work takes its time to start a process.
        address = self.product.addresses[self.victim]
        _wait_until(lambda: answers(f"{address}/healthz"), READY_SECONDS, f"{self.victim} does not come back.")
        longest = max(longest, time.monotonic() + SPARE_SECONDS)
        for reader in [reader for each in self.asked for reader in each.readers]:
            reader.join(max(0.0, longest - time.monotonic()))
            reader.leave()

    def compare(self, outcome: AnswersOutcome) -> None:
        kept = _kept(self.connection, self.asked)
        for each in self.asked:
            whole, turn = self.model.whole(each.number), kept[each.turn_id]
            if not all(_has_read(reader, turn.text, whole) for reader in each.readers):
                outcome.wrong.append(each.number)
            outcome.readers += len(each.readers)
            outcome.lost_lines += sum(reader.lost_lines for reader in each.readers)
            outcome.unended += sum(reader.ending is None for reader in each.readers)
            if self._is_killed(each):
                self._compare_killed(each, turn, outcome)
            else:
                outcome.others += 1
                outcome.others_whole += (turn.status, turn.text.strip()) == ("complete", whole.strip())

    def go_on(self, outcome: AnswersOutcome) -> None:
        """Continue what was killed, all of it at once, at the other process."""
        killed = [each for each in self.asked if self._is_killed(each)]
        before = _kept(self.connection, killed)
        address = next(address for web, address in self.product.addresses.items() if web != self.victim)
        readers = [StreamReader(each.person, [address], body=_continuing(each)) for each in killed]
        deadline = time.monotonic() + TIMEOUT_SECONDS
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))
            reader.leave()
        now = _kept(self.connection, killed)
        for each, reader in zip(killed, readers, strict=True):
            text = before[each.turn_id].text + REST
            outcome.continued += reader.text == text and now[each.turn_id] == ("complete", text)

    def _is_killed(self, each: Asked) -> bool:
        """One that was whole before was not."""
        written = self.model.written(each.number, before=self.killed_at)
        return each.web == self.victim and written != self.model.whole(each.number)

    def _compare_killed(self, each: Asked, turn: KeptAnswer, outcome: AnswersOutcome) -> None:
        outcome.killed += 1
        outcome.written += len(self.model.written(each.number, before=self.killed_at))
        outcome.kept += len(turn.text)
        lost = self.model.lost_seconds(each.number, turn.text, killed_at=self.killed_at)
        outcome.most_lost_seconds = max(outcome.most_lost_seconds, lost)
        outcome.unclosed += turn.status != "interrupted"
        outcome.closed_after.append(self.closed_at.get(each.turn_id, time.monotonic()) - self.killed_at)
        asker, here, there = each.readers
        outcome.heard_after += [one.ended_at - self.killed_at for one in (asker, there) if one.ending is not None]
        outcome.heard_there_after += [here.ended_at - self.killed_at] if here.ending is not None else []


def _continuing(each: Asked) -> dict[str, Any]:
    place = each.readers[0].place
    return {"conversation_id": place["conversationId"], "continue": place["turnNumber"]}


def _has_read(reader: StreamReader, kept: str, whole: str) -> bool:
    """All that was kept and nothing else; a reader may have seen a moment more than was kept."""
    return reader.text.startswith(kept.rstrip()) and whole.startswith(reader.text.rstrip())


def _kept(connection: psycopg.Connection[Any], asked: list[Asked]) -> dict[int, KeptAnswer]:
    rows = connection.execute(_TURNS, [[each.turn_id for each in asked]]).fetchall()
    return {turn_id: KeptAnswer(status, text) for turn_id, status, text in rows}


def _wait_until(is_so: Callable[[], bool], seconds: float, otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(LOOK_SECONDS / 10)


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    return f"{sorted(seconds)[len(seconds) // 2]:.1f} / {max(seconds):.1f} s"
