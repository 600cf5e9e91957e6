"""Holds a process's answers, follows those of other processes, and warms the process up.

Holds the answers of one event loop: running ones, recently ended ones, and mirrors of other processes' answers.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from django.contrib import auth
from django.db import InterfaceError, OperationalError, connections, transaction
from django.utils import timezone
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel

from chat.agent import loop
from chat.agent.context import ChatDeps, ReasoningWritten, TextWritten, ToolCalled, ToolReturned
from chat.answers.log import NOWHERE, AnswerLog, EventId
from chat.answers.reader import BlockRenderer, ReaderView, ending_of, ending_of_deleted, events_of_call, read, replay
from chat.answers.writer import AnswerWriter, ProgressSaver, as_caller, load_turn
from core.isolation.acting import Caller, acting_as
from intake.chats import services
from intake.chats.services import Answer, TurnRequest, create_turn, finish_turn
from intake.chats.usage import Usage
from intake.llm import models
from intake.markdown import render, render_blocks
from intake.models import Turn, User
from intake.revocation import IsAuthorized

# --- Follows an answer that another process writes, by its row in the database ---
# All readers of this process share one mirror of the log. A row does not say where in its text a tool was called: the
# positions of a mirror are its own, and readers do not get them.

logger = logging.getLogger(__name__)

FOLLOW_POLL_SECONDS = 0.5


class RemoteLog:
    """`log` grows while there are readers. The caller who opened the mirror closes it."""

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
                    log.supersede()
                else:
                    self._add_saved(turn)
                    if turn.has_ended:
                        log.finish(ending_of(turn))
            await asyncio.sleep(FOLLOW_POLL_SECONDS)

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


# --- Holds the answers of one event loop ---

# How long, and how many, complete answers are kept for readers who lost the connection shortly before the end.
KEPT_SECONDS = 60
MOST_KEPT = 200


@dataclass(eq=False)
class AnswerHub:
    writings: dict[int, AnswerWriter] = field(default_factory=dict)
    saver: ProgressSaver = field(default_factory=ProgressSaver)
    _ended: dict[int, AnswerLog] = field(default_factory=dict)
    _mirrors: dict[int, RemoteLog] = field(default_factory=dict)
    _drawings: dict[tuple[AnswerLog, str], BlockRenderer] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def start(
        self, turn: Turn, caller: Caller, *, is_authorized: IsAuthorized | None = None, newest_only: bool = False
    ) -> AnswerWriter:
        """The caller has just begun or resumed the turn, so no other process answers this attempt."""
        writing = AnswerWriter(turn, caller, is_authorized=is_authorized, newest_only=newest_only)
        self.writings[turn.pk] = writing
        self.saver.keep(writing)
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
        is_authorized: IsAuthorized | None = None,
        with_blocks: bool = False,
        language: str = "en",
    ) -> AsyncIterator[bytes]:
        """The events of a turn's answer, in whichever process it is written and whether or not it has ended."""
        has_part = after is not None and after.attempt == turn.attempt and after.position != NOWHERE
        position = after.position if after is not None and has_part else None
        log = None if turn.has_ended and position is None else self._log_here(turn)
        if log is None and turn.has_ended:
            async for events in replay(turn=turn, with_blocks=with_blocks, language=language):
                yield events
            return
        with self._opened(log, turn, caller) as opened, self._viewed(opened, language, with_blocks=with_blocks) as view:
            async for events in read(opened, after=position, view=view, is_authorized=is_authorized, language=language):
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
            mirror = self._mirrors[turn.pk] = RemoteLog(turn, caller)
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
    def _viewed(self, log: AnswerLog, language: str, *, with_blocks: bool) -> Iterator[ReaderView | None]:
        if not with_blocks:
            yield None
            return
        if (drawing := self._drawings.get((log, language))) is None:
            drawing = self._drawings[log, language] = BlockRenderer(log, language)
        view = drawing.open_view()
        try:
            yield view
        finally:
            if not drawing.close_view(view):
                self._drawings.pop((log, language), None)

    async def _see_out(self, writing: AnswerWriter) -> None:
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


_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, AnswerHub] = WeakKeyDictionary()


def answer_hub() -> AnswerHub:
    """The hub of the running loop."""
    return _hubs.setdefault(asyncio.get_running_loop(), AnswerHub())


# --- The chat's answers for the endpoints: start an answer, follow it with any number of readers, stop it early ---
# An answer belongs to its turn (`chat/answers/`): it is written to its end with or without readers.

__all__ = ["cut_off_answers", "follow_answer", "replay", "start_answer", "stop_answer", "stream_answer"]

# How long a request to stop waits for the writer to save the text.
STOP_SECONDS = 2.0
# How long a stopping server waits for the last saves.
SHUTDOWN_SECONDS = 5


def start_answer(
    *, turn: Turn, caller: Caller, is_authorized: IsAuthorized | None = None, newest_only: bool = False
) -> None:
    """Start writing the answer of a turn that was just begun or resumed.

    `is_authorized` is checked every two seconds, and the answer ends when its starter loses access. `newest_only`: the
    model gets only the newer half of the earlier messages that would fit.
    """
    answer_hub().start(turn, caller, is_authorized=is_authorized, newest_only=newest_only)


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

    `is_authorized` is for this reader: without access the reader's stream ends and the answer continues. `with_blocks`
    adds `blocks`; `language` is that of the reader's page.
    """
    following = answer_hub().follow(
        turn, caller, after=after, is_authorized=is_authorized, with_blocks=with_blocks, language=language
    )
    async for events in following:
        yield events


async def stream_answer(
    *, turn: Turn, caller: Caller, is_authorized: IsAuthorized | None = None, with_blocks: bool = False
) -> AsyncIterator[bytes]:
    """Start the answer and follow it from the beginning."""
    start_answer(turn=turn, caller=caller, is_authorized=is_authorized)
    async for events in follow_answer(turn=turn, caller=caller, is_authorized=is_authorized, with_blocks=with_blocks):
        yield events


async def stop_answer(*, turn: Turn, caller: Caller) -> Turn | None:
    """End the answer, in any process; returns the turn in its new state, None if it was deleted.

    The turn's status stops a writer in another process, and one here that does not end in time.
    """
    if (writing := answer_hub().writings.get(turn.pk)) is not None:
        writing.stop()
        await writing.ended(seconds=STOP_SECONDS)
    await as_caller(caller, services.interrupt_turn, turn_id=turn.pk, attempt=turn.attempt)
    return await load_turn(turn.pk, caller=caller)


async def cut_off_answers() -> None:
    """Save the text of every answer of this loop as interrupted: the last step of a stopping server."""
    writings = list(answer_hub().writings.values())
    for writing in writings:
        writing.stop()
    await asyncio.gather(*(writing.ended(seconds=SHUTDOWN_SECONDS) for writing in writings))


# --- Prepares a web process at its start, so that the first user does not wait for loading and building ---
# The vendor's package alone takes seconds to import. Then one answer is produced without the vendor, by a model that
# says one word, because libraries build data at their first use. And a first message is saved and rolled back, because
# PostgreSQL reads its catalogue for the first statements of each connection.


# Renders everything that is loaded at its first use: highlighted code, a formula, a table.
SAMPLE = "# Hello\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nprint(1)\n```\n\n$x^2$ and **more**\n"


async def warm_up() -> None:
    """Runs in the event loop that will serve. A failure is logged; the first answer will report it."""
    try:
        await asyncio.to_thread(_load)
        await models.warm_up()
        await _dry_run(TestModel(call_tools=[], custom_output_text="Hello."))
        await asyncio.to_thread(_dry_run_saving)
    except Exception as error:
        logger.warning("The chat could not be warmed up (%s); its first answer will take longer", type(error).__name__)


def _load() -> None:
    auth.get_backends()
    render(SAMPLE)
    render_blocks(SAMPLE)


async def _dry_run(model: Model) -> None:
    deps = ChatDeps(caller=Caller(user_id=None), now=timezone.now())
    async for _ in loop.answer(message="Hello", history=[], deps=deps, model=model):
        pass


def _dry_run_saving() -> None:
    """Saves a new visitor's first message and its answer, and rolls back, on the pool's only connection."""
    try:
        with transaction.atomic():
            caller = Caller(user_id=User.objects.create_visitor().pk, is_visitor=True)
            with acting_as(caller):
                turn = create_turn(TurnRequest(message="Hello"), caller=caller, now=timezone.now())
                finish_turn(turn_id=turn.pk, answer=Answer(text="Hello.", status=Turn.Status.COMPLETE))
            transaction.set_rollback(True)
    finally:
        connections.close_all()
