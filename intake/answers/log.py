"""The log of one answer: one task writes it, and any number of readers follow it, each at their own pace; and the
stream in Redis by which the readers of other processes follow it.

An event ends at a position: text and reasoning count their characters, anything else counts one. A position therefore
means the same however the text is split into events, and a reader who continues from one gets every character exactly
once.
"""

import asyncio
import json
import logging
import re
import time
from bisect import bisect_right
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import redis
import redis.asyncio
from django.conf import settings
from redis.exceptions import RedisError, ResponseError

from core import resilience
from core.errors import NotFound
from core.text import kept, restored
from intake.agent.context import WRITTEN, AgentEvent, ReasoningWritten, TextWritten, ToolCalled, ToolReturned
from intake.chats.running import ANY_ATTEMPT, KEPT_SECONDS, TIMEOUT_SECONDS, lease_key, stop_key, stream_key
from intake.models import Turn

# A reader who is further behind gets the text between two other events in one piece.
MOST_APART = 16
# From this many events on, the older half also keeps its text in one piece.
COMPACTED_FROM = 512

# The position of a reader who has only got the `turn` event, and of events without a position.
NOWHERE = 0

_EVENT_ID = re.compile(r"([1-9]\d{0,8})-(\d{1,12})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ending:
    """The last event of a stream, `done` or `error`, with its data."""

    name: str
    data: dict[str, Any]

    @property
    def is_cut_short(self) -> bool:
        """Whether the answer was stopped or deleted before it was complete."""
        return self.data.get("status") == Turn.Status.INTERRUPTED or self.data.get("code") == NotFound.code


@dataclass(frozen=True, slots=True)
class EventId:
    """The position of a reader: the attempt at the answer, and the position within it."""

    attempt: int
    position: int

    def __str__(self) -> str:
        return f"{self.attempt}-{self.position}"

    @classmethod
    def parse(cls, text: str) -> "EventId | None":
        """None if it is not one of our ids: the reader then starts at the beginning."""
        match = _EVENT_ID.fullmatch(text)
        return None if match is None else cls(int(match[1]), int(match[2]))


class AnswerLog:
    """Belongs to the event loop in which it was created."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.ending: Ending | None = None
        # Whether it will not continue although it has no ending: another attempt has replaced it.
        self.is_superseded = False
        # Whether another process writes it, so that it may be behind a reader's position.
        self.is_mirror = False
        # Whether its turn was deleted, so that no part of it may be kept anywhere.
        self.is_deleted = False
        # Whether its positions are the writer's, so that readers may get them.
        self.is_exact = True
        # How many earlier messages the model does not get; None until the prompt is made, and in a mirror.
        self.not_sent: int | None = None
        self.sent: int | None = None
        self._events: list[AgentEvent] = []
        self._ends: list[int] = []
        self._news = asyncio.Event()

    @property
    def position(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def is_over(self) -> bool:
        return self.ending is not None or self.is_superseded

    @property
    def text(self) -> str:
        return "".join(event.text for event in self._events if isinstance(event, TextWritten))

    @property
    def reasoning(self) -> str:
        return "".join(event.text for event in self._events if isinstance(event, ReasoningWritten))

    @property
    def thought_seconds(self) -> float | None:
        """The thinking time so far; None without thinking or if it is unknown."""
        thoughts = (event.seconds for event in reversed(self._events) if isinstance(event, ReasoningWritten))
        return next(thoughts, None)

    def add(self, event: AgentEvent) -> None:
        if not (length := length_of(event)):
            return
        self._ends.append(self.position + length)
        self._events.append(event)
        if len(self._events) >= COMPACTED_FROM:
            self._compact()
        self.notify()

    def set_sent(self, *, not_sent: int, sent: int) -> None:
        """The prompt is made: a reader may get the first event."""
        self.not_sent, self.sent = not_sent, sent
        self.notify()

    def finish(self, ending: Ending) -> None:
        if not self.is_over:
            self.ending = ending
            self.notify()

    def supersede(self) -> None:
        self.is_superseded = True
        self.notify()

    def since(self, position: int, *, most_apart: int = MOST_APART) -> list[tuple[int, AgentEvent]]:
        """The events after a position, each with the position at which it ends."""
        first = bisect_right(self._ends, position)
        found = list(zip(self._ends[first:], self._events[first:], strict=True))
        if found and isinstance(found[0][1], WRITTEN):
            end, event = found[0]
            found[0] = (end, rest_of(event, position - end + length_of(event)))
        return _joined(found) if len(found) > most_apart else found

    def notify(self) -> None:
        """Wake all waiting readers; each one checks whether there is an event for it."""
        self._news.set()
        self._news.clear()

    async def wait(self) -> None:
        """Wait until the next `notify`. Check first, without an await in between: earlier events do not wake the
        reader.
        """
        await self._news.wait()

    def _compact(self) -> None:
        half = len(self._events) // 2
        older = _joined(list(zip(self._ends[:half], self._events[:half], strict=True)))
        self._ends[:half] = [end for end, _ in older]
        self._events[:half] = [event for _, event in older]


def length_of(event: AgentEvent) -> int:
    return len(event.text) if isinstance(event, WRITTEN) else 1


def rest_of(event: AgentEvent, start: int) -> AgentEvent:
    """The text from the character `start` on."""
    return replace(event, text=event.text[start:]) if isinstance(event, WRITTEN) else event


def _joined(events: list[tuple[int, AgentEvent]]) -> list[tuple[int, AgentEvent]]:
    """Join neighbours of one kind that were written as one."""
    joined: list[tuple[int, AgentEvent]] = []
    for kind, group in groupby(events, key=lambda each: type(each[1])):
        members = list(group)
        end, last = members[-1]
        if kind in WRITTEN and isinstance(last, WRITTEN):
            joined.append(
                (end, replace(last, text="".join(each.text for _, each in members if isinstance(each, WRITTEN))))
            )
        else:
            joined += members
    return joined


# --- Shares answers between processes through Redis: streams of events, leases, and the publisher ---

logger = logging.getLogger(__name__)

KEPT_AFTER_END_SECONDS = 120
# The approximate number of entries kept in each stream. A follower who misses the first ones uses the database.
LONGEST_STREAM = 20_000

_FIELD = "event"


# One entry of a stream: the end position of an event and the event or, without one, the end of the answer.
StreamEntry = tuple[EventId, AgentEvent | None]


def async_client(*, timeout: float = TIMEOUT_SECONDS) -> "AbstractAsyncContextManager[redis.asyncio.Redis]":
    """A client for the running event loop, closed at the end of the block."""
    return resilience.async_client(settings.REDIS_URL, seconds=timeout, connect_seconds=TIMEOUT_SECONDS)


def fields_of(event: AgentEvent | None) -> dict[Any, Any]:
    match event:
        case None:
            data: dict[str, Any] = {"ended": True}
        case ReasoningWritten(text=text, seconds=seconds):
            data = {"reasoning": [text, seconds]}
        case TextWritten(text=text):
            data = {"text": text}
        case ToolCalled(id=id_, name=name, input=input_):
            data = {"call": [id_, name, input_]}
        case ToolReturned(id=id_, summary=summary, is_error=is_error, stored=stored, place=place, found=found):
            shown = {"summary": summary, "found": found, **kept(summary)}
            data = {"result": [id_, shown, is_error, stored, place]}
    return {_FIELD: json.dumps(data, separators=(",", ":"))}


def entry_of(id_: bytes, fields: dict[bytes, bytes]) -> StreamEntry:
    """Raises `ValueError` for an entry that no writer of this version wrote."""
    parsed = EventId.parse(id_.decode())
    if parsed is None:
        raise ValueError("not the id of an event")
    match json.loads(fields.get(_FIELD.encode(), b"null")):
        case {"ended": True}:
            return parsed, None
        case {"reasoning": [str(text), seconds]}:
            return parsed, ReasoningWritten(text, seconds)
        case {"text": str(text)}:
            return parsed, TextWritten(text)
        case {"call": [id_, name, input_]}:
            return parsed, ToolCalled(id_, name, input_)
        case {"result": [id_, {"summary": str()} as told, is_error, stored, place]}:
            summary = restored(told, "summary")
            found = told.get("found")
            return parsed, ToolReturned(id_, summary, is_error=is_error, stored=stored, place=place, found=found)
    raise ValueError("not an event")


def begins_at(entry: StreamEntry) -> int:
    id_, event = entry
    return id_.position - (1 if event is None else length_of(event))


# --- Sends the new events of all answers of a process to Redis, with one pipeline some twenty times a second ---
# The same pipeline renews the writers' leases and reads the requests to stop. If Redis cannot be reached, the events
# are kept and sent completely later: an entry carries the text from the end of the last entry that arrived.


SEND_EVERY_SECONDS = 0.05
# While nothing is written, how often requests to stop are read.
ASK_EVERY_SECONDS = 0.1
# How often a lease is renewed before it would expire.
RENEWALS = 5
# How long Redis is not tried after a failure.
REST_SECONDS = 1.0
# How long an ended answer is kept for a Redis that cannot be reached.
GIVE_UP_SECONDS = 30.0

Command = tuple["_Published", str, int]


@dataclass(eq=False, slots=True)
class _Published:
    log: AnswerLog
    stop: Callable[[], None]
    sent: int = 0
    is_ending_sent: bool = False
    renew_at: float = 0.0
    ended_at: float | None = None

    @property
    def has_news(self) -> bool:
        return self.log.position > self.sent or (self.log.is_over and not self.is_ending_sent)

    def note_deletion(self) -> None:
        """The turn was deleted after its answer had ended: events that are sent again after a failure are removed as
        well.
        """
        if not self.log.is_deleted:
            self.log.is_deleted, self.is_ending_sent = True, False

    def is_done(self, now: float) -> bool:
        if not self.log.is_over:
            return False
        self.ended_at = self.ended_at or now
        return self.is_ending_sent or now > self.ended_at + GIVE_UP_SECONDS


@dataclass(eq=False)
class EventPublisher:
    """One per event loop; runs while there are answers to publish."""

    _answers: dict[int, _Published] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None
    _asked_at: float = 0.0

    def publish(self, log: AnswerLog, *, stop: Callable[[], None]) -> None:
        """`stop` is called when any process requests that the answer end."""
        self._answers[log.turn.pk] = _Published(log, stop)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def flushed(self) -> None:
        """Wait until everything that has ended is sent, or cannot be sent."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while self._answers:
            try:
                async with async_client() as client:
                    await self._send_all(client)
            except (RedisError, OSError) as error:
                logger.warning("Redis is away, and answers are followed without it (%s)", type(error).__name__)
                self._drop_done()
                # It is unknown which of the leases were renewed.
                for each in self._answers.values():
                    each.renew_at = 0.0
                await asyncio.sleep(REST_SECONDS)

    async def _send_all(self, client: Any) -> None:
        """Raises `RedisError`."""
        while self._answers:
            if any(each.has_news for each in self._answers.values()) or self._is_time_to_ask():
                await self._send(client)
            self._drop_done()
            await asyncio.sleep(SEND_EVERY_SECONDS)

    def _drop_done(self) -> None:
        now = time.monotonic()
        self._answers = {key: each for key, each in self._answers.items() if not each.is_done(now)}

    def _is_time_to_ask(self) -> bool:
        return time.monotonic() > self._asked_at + ASK_EVERY_SECONDS

    async def _send(self, client: Any) -> None:
        self._asked_at = now = time.monotonic()
        asked = list(self._answers.values())
        pipeline = client.pipeline(transaction=False)
        commands: list[Command | None] = []
        for each in asked:
            commands += self._add(each, pipeline, now)
        pipeline.mget([stop_key(each.log.turn.pk) for each in asked])
        *results, stops = await pipeline.execute(raise_on_error=False)
        for command, result in zip(commands, results, strict=True):
            _note(command, result)
        _raise_first([*results, stops])
        for each, requested in zip(asked, stops, strict=True):
            if requested is not None and int(requested) in (ANY_ATTEMPT, each.log.turn.attempt):
                each.stop()
            if requested is not None and int(requested) == ANY_ATTEMPT and each.log.is_over:
                each.note_deletion()

    def _add(self, each: _Published, pipeline: Any, now: float) -> list["Command | None"]:
        """Add an answer's commands to the pipeline; returns the position that each of them reaches if it arrives."""
        turn, log = each.log.turn, each.log
        key, lease = stream_key(turn.pk), lease_key(turn.pk)
        if log.is_deleted:
            pipeline.unlink(key, lease)
            return [(each, "ending", each.sent)]
        commands: list[Command | None] = []
        for position, event in log.since(each.sent, most_apart=1):
            self._append(pipeline, key, EventId(turn.attempt, position), fields_of(event))
            commands.append((each, "event", position))
        if log.is_over and not each.is_ending_sent:
            self._append(pipeline, key, EventId(turn.attempt, log.position + 1), fields_of(None))
            pipeline.expire(key, KEPT_AFTER_END_SECONDS)
            pipeline.delete(lease)
            commands += [(each, "ending", log.position), None, None]
        elif now >= each.renew_at:
            each.renew_at = now + settings.ANSWER_LEASE_SECONDS / RENEWALS
            pipeline.set(lease, turn.attempt, ex=settings.ANSWER_LEASE_SECONDS)
            pipeline.expire(key, KEPT_SECONDS)
            commands += [None, None]
        return commands

    @staticmethod
    def _append(pipeline: Any, key: str, id_: EventId, fields: dict[Any, Any]) -> None:
        pipeline.xadd(key, fields, id=str(id_), maxlen=LONGEST_STREAM, approximate=True)


def _note(command: Command | None, result: Any) -> None:
    """An id that is not above the last one has arrived before, or comes from another attempt."""
    if command is None or (isinstance(result, Exception) and not _is_old(result)):
        return
    each, what, position = command
    # Commands after a failed one were sent too, and are sent again.
    if what == "ending":
        each.is_ending_sent = each.sent == position
    else:
        each.sent = max(each.sent, position)


def _is_old(error: Exception) -> bool:
    return isinstance(error, ResponseError) and "equal or smaller" in str(error)


def _raise_first(results: list[Any]) -> None:
    for result in results:
        if isinstance(result, Exception) and not _is_old(result):
            raise result
