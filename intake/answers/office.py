"""Holds the answers of one event loop: running ones, recently ended ones, and mirrors of other processes' answers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from core.isolation.caller import Caller
from intake.answers.drawing import Drawing, ReaderView
from intake.answers.following import Mirror, mirror_of_ended
from intake.answers.keeping import Keeper
from intake.answers.log import NOWHERE, AnswerLog, EventId
from intake.answers.publishing import Publisher
from intake.answers.reading import read, replay
from intake.answers.writing import Writing
from intake.models import Turn
from intake.revocation import IsAuthorized

# How long, and how many, complete answers are kept for readers who lost the connection shortly before the end.
KEPT_SECONDS = 60
MOST_KEPT = 200


@dataclass(eq=False)
class Office:
    writings: dict[int, Writing] = field(default_factory=dict)
    publisher: Publisher = field(default_factory=Publisher)
    keeper: Keeper = field(default_factory=Keeper)
    _ended: dict[int, AnswerLog] = field(default_factory=dict)
    _mirrors: dict[int, Mirror] = field(default_factory=dict)
    _drawings: dict[AnswerLog, Drawing] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start(self, turn: Turn, caller: Caller, *, is_still_in: IsAuthorized | None = None) -> Writing:
        """The caller has just begun or resumed the turn, so no other process answers this attempt."""
        writing = Writing(turn, caller, is_still_in=is_still_in)
        self.writings[turn.pk] = writing
        self.publisher.publish(writing.log, stop=writing.stop)
        self.keeper.keep(writing)
        task = asyncio.create_task(self._see_out(writing))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return writing

    async def follow(
        self,
        turn: Turn,
        caller: Caller,
        *,
        after: EventId | None = None,
        is_still_in: IsAuthorized | None = None,
        with_blocks: bool = False,
    ) -> AsyncIterator[bytes]:
        """The events of a turn's answer, in whichever process it is written and whether or not it has ended."""
        has_part = after is not None and after.attempt == turn.attempt and after.position != NOWHERE
        position = after.position if after is not None and has_part else None
        log = None if turn.has_ended and position is None else self._log_here(turn)
        if log is None and turn.has_ended:
            log = await mirror_of_ended(turn) if position is not None else None
            if log is None:
                async for events in replay(turn=turn, with_blocks=with_blocks):
                    yield events
                return
        with self._opened(log, turn, caller) as opened, self._viewed(opened, with_blocks=with_blocks) as view:
            async for events in read(opened, after=position, view=view, is_still_in=is_still_in):
                yield events

    def _log_here(self, turn: Turn) -> AnswerLog | None:
        """The log of this attempt, if this loop writes or wrote it."""
        writing = self.writings.get(turn.pk)
        log = writing.log if writing is not None else self._ended.get(turn.pk)
        return log if log is not None and log.turn.attempt == turn.attempt else None

    @contextmanager
    def _opened(self, log: AnswerLog | None, turn: Turn, caller: Caller) -> Iterator[AnswerLog]:
        """The log, or without one the mirror that all readers of this loop share."""
        if log is not None:
            yield log
            return
        mirror = self._mirrors.get(turn.pk)
        if mirror is None or mirror.log.turn.attempt != turn.attempt:
            mirror = self._mirrors[turn.pk] = Mirror(turn, caller)
        mirror.readers += 1
        try:
            yield mirror.log
        finally:
            mirror.readers -= 1
            if not mirror.readers:
                mirror.close()
                if self._mirrors.get(turn.pk) is mirror:
                    del self._mirrors[turn.pk]

    @contextmanager
    def _viewed(self, log: AnswerLog, *, with_blocks: bool) -> Iterator[ReaderView | None]:
        if not with_blocks:
            yield None
            return
        drawing = self._drawings.get(log) or self._drawings.setdefault(log, Drawing(log))
        view = drawing.open_view()
        try:
            yield view
        finally:
            if not drawing.close_view(view):
                self._drawings.pop(log, None)

    async def _see_out(self, writing: Writing) -> None:
        """Keep the complete answer for a while, then remove it."""
        turn_id, log = writing.log.turn.pk, writing.log
        await writing.ended()
        if self.writings.get(turn_id) is writing:
            del self.writings[turn_id]
        if log.is_deleted:
            return
        self._ended.pop(turn_id, None)
        self._ended[turn_id] = log
        while len(self._ended) > MOST_KEPT:
            del self._ended[next(iter(self._ended))]
        await asyncio.sleep(KEPT_SECONDS)
        if self._ended.get(turn_id) is log:
            del self._ended[turn_id]


_offices: WeakKeyDictionary[asyncio.AbstractEventLoop, Office] = WeakKeyDictionary()


def office() -> Office:
    """The office of the running loop."""
    return _offices.setdefault(asyncio.get_running_loop(), Office())
