"""Holds the answers of an event loop: starts one, follows it with any number of readers, stops it early.

An answer belongs to its turn: it is written to its end with or without readers. One that another process writes is
followed by its row in the database.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from django.db import InterfaceError, OperationalError

from chat.agent.context import ReasoningWritten, TextWritten, ToolCalled, ToolReturned
from chat.answers.blocks import BlockRenderer
from chat.answers.database import as_caller, load_turn
from chat.answers.log import NOWHERE, AnswerLog, EventId
from chat.answers.reader import ending_of, ending_of_deleted, events_of_call, read, replay
from chat.answers.saver import ProgressSaver
from chat.answers.writer import AnswerWriter
from core.errors import Unavailable
from core.isolation.acting import Caller
from intake.chats import services
from intake.chats.usage import Usage
from intake.models import Turn
from intake.revocation import IsAuthorized

logger = logging.getLogger(__name__)


class RemoteLog:
    """An answer that another process writes. Its readers here share one `log`, which grows while there are any.

    A row does not say where in its text a tool was called: the positions of a mirror are its own, and readers do not
    get them.
    """

    def __init__(self, turn: Turn, caller: Caller) -> None:
        self.log = AnswerLog(turn)
        self.log.is_mirror = True
        self.readers = 0
        self._caller = caller
        self._task = asyncio.create_task(self._follow())

    def close(self) -> None:
        self._task.cancel()

    async def _follow(self) -> None:
        log = self.log
        while not log.is_over:
            try:
                turn = await load_turn(log.turn.pk, caller=self._caller)
            except (OperationalError, InterfaceError):
                logger.warning("An answer cannot be followed for the moment: the database is away")
            else:
                if turn is None:
                    log.finish(ending_of_deleted())
                elif turn.attempt != log.turn.attempt:
                    log.is_superseded = True
                    log.notify()
                else:
                    self._add_saved(turn)
                    if not turn.is_being_written:
                        log.finish(ending_of(turn))
            await asyncio.sleep(0.5)

    def _add_saved(self, turn: Turn) -> None:
        log, text, reasoning = self.log, self.log.text, self.log.reasoning
        if turn.reasoning.startswith(reasoning):
            log.add(ReasoningWritten(turn.reasoning[len(reasoning) :], Usage.of(turn.usage).thought_seconds))
        known = {(type(event), event.id) for _, event in log.since(0) if isinstance(event, ToolCalled | ToolReturned)}
        for event in (event for call in turn.tool_calls for event in events_of_call(call)):
            if (type(event), event.id) not in known:
                log.add(event)
        if turn.assistant_message.startswith(text):
            log.add(TextWritten(turn.assistant_message[len(text) :]))


@dataclass(eq=False)
class AnswerHub:
    """The running answers of one event loop, those that have just ended, and mirrors of other processes' answers."""

    writings: dict[int, AnswerWriter] = field(default_factory=dict)
    saver: ProgressSaver = field(default_factory=ProgressSaver)
    ended: dict[int, AnswerLog] = field(default_factory=dict)
    mirrors: dict[int, RemoteLog] = field(default_factory=dict)
    drawings: dict[tuple[AnswerLog, str], BlockRenderer] = field(default_factory=dict)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, AnswerHub] = WeakKeyDictionary()


def answer_hub() -> AnswerHub:
    """The hub of the running loop."""
    return _hubs.setdefault(asyncio.get_running_loop(), AnswerHub())


def start_answer(writing: AnswerWriter) -> AnswerWriter:
    """Start writing the answer of a turn that was just begun or resumed, so no other process answers this attempt."""
    hub = answer_hub()
    hub.writings[writing.log.turn.pk] = writing
    hub.saver.keep(writing)
    task = asyncio.create_task(_retire(hub, writing))
    hub.tasks.add(task)
    task.add_done_callback(hub.tasks.discard)
    return writing


async def _retire(hub: AnswerHub, writing: AnswerWriter) -> None:
    """Keep the complete answer for a while, then remove it."""
    turn_id, log = writing.log.turn.pk, writing.log
    await writing.ended()
    if hub.writings.get(turn_id) is writing:
        del hub.writings[turn_id]
    if log.is_deleted:
        return
    hub.ended.pop(turn_id, None)
    hub.ended[turn_id] = log
    while len(hub.ended) > 200:
        del hub.ended[next(iter(hub.ended))]
    # How long, and how many, complete answers are kept for readers who lost the connection shortly before the end.
    await asyncio.sleep(60)
    if hub.ended.get(turn_id) is log:
        del hub.ended[turn_id]


async def follow_answer(
    *,
    turn: Turn,
    caller: Caller,
    after: EventId | None = None,
    is_authorized: IsAuthorized | None = None,
    with_blocks: bool = False,
    language: str = "en",
) -> AsyncIterator[bytes]:
    """The server-sent events of a turn's answer, from `turn`, or after the event `after`, to `done` or `error`.

    It follows the log of this loop, or else the mirror of another process's answer; an answer that has ended elsewhere
    is replayed from its row. `is_authorized` is for this reader: without access the reader's stream ends and the answer
    continues. `with_blocks` adds `blocks`; `language` is that of the reader's page.
    """
    hub, position = answer_hub(), None
    if after is not None and after.attempt == turn.attempt and after.position != NOWHERE:
        position = after.position
    log, mirror, drawing = None, None, None
    if turn.is_being_written or position is not None:
        writing = hub.writings.get(turn.pk)
        log = writing.log if writing is not None else hub.ended.get(turn.pk)
    if log is None or log.turn.attempt != turn.attempt:
        if not turn.is_being_written:
            async for events in replay(turn=turn, caller=caller, with_blocks=with_blocks, language=language):
                yield events
            return
        mirror = hub.mirrors.get(turn.pk)
        if mirror is None or mirror.log.turn.attempt != turn.attempt:
            mirror = hub.mirrors[turn.pk] = RemoteLog(turn, caller)
        mirror.readers += 1
        log = mirror.log
    if with_blocks:
        if (drawing := hub.drawings.get((log, language))) is None:
            drawing = hub.drawings[log, language] = BlockRenderer(log, language)
        drawing.readers += 1
    try:
        reader: dict[str, Any] = {"caller": caller, "is_authorized": is_authorized, "language": language}
        async for events in read(log, after=position, drawing=drawing, **reader):
            yield events
    finally:
        if drawing is not None:
            drawing.readers -= 1
            if not drawing.readers:
                drawing.stop()
                hub.drawings.pop((log, language), None)
        if mirror is not None:
            mirror.readers -= 1
            if not mirror.readers:
                mirror.close()
                if hub.mirrors.get(turn.pk) is mirror:
                    del hub.mirrors[turn.pk]


async def stop_answer(*, turn: Turn, caller: Caller) -> Turn | None:
    """End the answer, in any process; returns the turn in its new state, None if it was deleted.

    The turn's status stops a writer in another process, and one here that does not end in time.
    """
    if (writing := answer_hub().writings.get(turn.pk)) is not None:
        writing.stop()
        # How long a request to stop waits for the writer to save the text.
        await writing.ended(seconds=2.0)
    await as_caller(caller, services.interrupt_turn, turn_id=turn.pk, attempt=turn.attempt)
    return await load_turn(turn.pk, caller=caller)


async def cut_off_answers() -> None:
    """Save the text of every answer of this loop as interrupted: the last step of a stopping server."""
    writings = list(answer_hub().writings.values())
    for writing in writings:
        writing.stop(Unavailable(services.SERVER_RESTARTED))
    # How long a stopping server waits for the last saves.
    await asyncio.gather(*(writing.ended(seconds=5) for writing in writings))
