"""The log of one answer: one task writes it, and any number of readers follow it, each at their own pace.

An event ends at a position: text and reasoning count their characters, anything else counts one. A position so means
the same however the text is cut into events, and a reader who goes on from one misses nothing and is given nothing
twice.
"""

import asyncio
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from core.errors import NotFound
from intake.agent.events import WRITTEN, AgentEvent, ReasoningWritten, TextWritten
from intake.models import Turn

# A reader who is further behind than so many events gets the text between two of them in one piece.
MOST_APART = 16
# From so many events on, the older half keeps its text in one piece, too.
COMPACTED_FROM = 512

# The position of a reader who has only been told which turn it is, and of what has no other.
NOWHERE = 0

_EVENT_ID = re.compile(r"([1-9]\d{0,8})-(\d{1,12})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Ending:
    """The last event of a stream, `done` or `error`, with its data."""

    name: str
    data: dict[str, Any]

    @property
    def is_cut_short(self) -> bool:
        """Whether somebody ended the answer, or deleted it, before it was whole."""
        return self.data.get("status") == Turn.Status.INTERRUPTED or self.data.get("code") == NotFound.code


@dataclass(frozen=True, slots=True)
class EventId:
    """Where a reader is: in which attempt at the answer, and at which position of it."""

    attempt: int
    position: int

    def __str__(self) -> str:
        return f"{self.attempt}-{self.position}"

    @classmethod
    def parse(cls, text: str) -> "EventId | None":
        """None for what is no id of ours: its reader begins at the beginning."""
        match = _EVENT_ID.fullmatch(text)
        return None if match is None else cls(int(match[1]), int(match[2]))


class AnswerLog:
    """Belongs to the event loop in which it was made."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.ending: Ending | None = None
        # Whether nothing more will come although there is no ending: another attempt has taken its place.
        self.is_superseded = False
        # Whether it is written elsewhere, and so may be behind what a reader has had already.
        self.is_mirror = False
        # Whether its turn is no more, and so nothing of it may be kept anywhere.
        self.is_deleted = False
        # Whether its positions are those of the answer's writer, and so may be named to readers.
        self.is_exact = True
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
        """How long the model has thought until now; None if it has not, or where that is not known."""
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

    def finish(self, ending: Ending) -> None:
        if not self.is_over:
            self.ending = ending
            self.notify()

    def supersede(self) -> None:
        self.is_superseded = True
        self.notify()

    def since(self, position: int, *, most_apart: int = MOST_APART) -> list[tuple[int, AgentEvent]]:
        """What comes after a position: each event with the position at which it ends."""
        first = bisect_right(self._ends, position)
        found = list(zip(self._ends[first:], self._events[first:], strict=True))
        if found and isinstance(found[0][1], WRITTEN):
            end, event = found[0]
            found[0] = (end, rest_of(event, position - end + length_of(event)))
        return _joined(found) if len(found) > most_apart else found

    def notify(self) -> None:
        """Wake all who wait; they look for themselves whether there is anything for them."""
        self._news.set()
        self._news.clear()

    async def wait(self) -> None:
        """Until the next `notify`. Look first, without awaiting anything between: what came before is not told."""
        await self._news.wait()

    def _compact(self) -> None:
        half = len(self._events) // 2
        older = _joined(list(zip(self._ends[:half], self._events[:half], strict=True)))
        self._ends[:half] = [end for end, _ in older]
        self._events[:half] = [event for _, event in older]


def length_of(event: AgentEvent) -> int:
    return len(event.text) if isinstance(event, WRITTEN) else 1


def rest_of(event: AgentEvent, start: int) -> AgentEvent:
    """What is written, from the character `start` on."""
    return replace(event, text=event.text[start:]) if isinstance(event, WRITTEN) else event


def _joined(events: list[tuple[int, AgentEvent]]) -> list[tuple[int, AgentEvent]]:
    """The same with neighbours of one kind that were written as one."""
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
