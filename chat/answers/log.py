"""The log of one answer: one task writes it, and any number of readers follow it, each at their own pace.

An event ends at a position: text and reasoning count their characters, anything else counts one. A position therefore
means the same however the text is split into events, and a reader who continues from one gets every character exactly
once.
"""

import asyncio
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from chat.agent.context import WRITTEN, AgentEvent, ReasoningWritten, TextWritten
from core.errors import NotFound
from intake.models import Turn

# From this many events on, the older half also keeps its text in one piece.
COMPACTED_FROM = 512

# The position of a reader who has only got the `turn` event, and of events without a position.
NOWHERE = 0

_EVENT_ID = re.compile(r"([1-9]\d{0,8})-(\d{1,12})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ending:
    """The last event of a stream, `done` or `error`, with its data; `turn` is the saved one of a complete answer."""

    name: str
    data: dict[str, Any]
    turn: Turn | None = None

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
        # Whether another process writes it: its positions are not the writer's, and readers do not get them.
        self.is_mirror = False
        # Whether its turn was deleted, so that no part of it may be kept anywhere.
        self.is_deleted = False
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
        if not (length := len(event.text) if isinstance(event, WRITTEN) else 1):
            return
        self._ends.append(self.position + length)
        self._events.append(event)
        if len(self._events) >= COMPACTED_FROM:
            self._compact()
        self.notify()

    def finish(self, ending: Ending) -> None:
        if not self.is_over:
            self.ending = ending
            self.notify()

    # A reader who is further behind gets the text between two other events in one piece.
    def since(self, position: int, *, most_apart: int = 16) -> list[tuple[int, AgentEvent]]:
        """The events after a position, each with the position at which it ends."""
        first = bisect_right(self._ends, position)
        found = list(zip(self._ends[first:], self._events[first:], strict=True))
        end, event = found[0] if found else (0, None)
        if isinstance(event, WRITTEN):
            found[0] = (end, replace(event, text=event.text[position - end + len(event.text) :]))
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
