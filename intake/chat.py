"""From a saved question to a saved answer: runs the agent loop and tells the reader of every step.

The answer is made in a task of its own and handed over through a short queue, so that
1. a reader who stops reading stops the model too, instead of filling memory;
2. a reader who leaves ends the task, which closes the model's stream and keeps what was written;
3. a reader who may no longer be here, their token revoked or their session ended, is sent nothing more either;
4. a comment goes out while nothing else does, so that proxies keep the line open.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import InterfaceError, OperationalError, connections
from django.utils import timezone

from core.errors import AuthenticationRequired, RecollectError, Unavailable
from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from intake import drawing, services, sse
from intake.after_answer import after_answer
from intake.agent import loop, prompt
from intake.agent.deps import deps_for
from intake.agent.events import AgentEvent, TextWritten, ToolCalled, ToolReturned
from intake.agent.models import is_recall_mode
from intake.drawing import Drawing
from intake.links import undo_path
from intake.markdown import render, render_blocks, render_summary
from intake.markdown.streaming import ChangedBlocks
from intake.models import Turn
from intake.services import Answer
from intake.standing import StillIn, until_out

logger = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15
# With the save itself, a server that is killed loses less than a second of what it wrote.
SAVE_EVERY_SECONDS = 0.5
QUEUE_LENGTH = 16
# How often, and after how many seconds each, the last save is tried while the database restarts.
LAST_SAVE_WAITS = (0.2, 0.5, 1, 2, 4)
THROWN_OUT = "Your session has ended, or your token was revoked. What was written is kept."
# How long a server that stops waits for the last saves.
STOP_SECONDS = 5

P = ParamSpec("P")
T = TypeVar("T")

# The answers that are being written, by their tasks.
_writers: set[asyncio.Task[None]] = set()


@dataclass(slots=True)
class Draft:
    """The answer while it is being written."""

    pieces: list[str] = field(default_factory=list)
    tool_calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def add(self, event: AgentEvent) -> None:
        match event:
            case TextWritten(text=text):
                self.pieces.append(text)
            case ToolCalled(id=id_, name=name, input=input_):
                self.tool_calls.append({"id": id_, "name": name, "input": input_})
            case ToolReturned(id=id_):
                for call in self.tool_calls:
                    if call["id"] == id_:
                        call.update(_result(event))

    def snapshot(self) -> tuple[str, list[dict[str, Any]]]:
        """What there is now, for another thread to save while more is added."""
        return self.text, [dict(call) for call in self.tool_calls]

    def ended(self, status: Turn.Status, error: RecollectError | None = None) -> Answer:
        return Answer(
            text=self.text,
            status=status,
            tool_calls=self.tool_calls,
            is_recall=is_recall_mode(),
            error=_as_data(error) if error else None,
        )


async def stream_answer(
    *, turn: Turn, caller: Caller, is_still_in: StillIn | None = None, with_blocks: bool = False
) -> AsyncIterator[bytes]:
    """The server-sent events of one turn, from `turn` to `done` or `error`.

    `is_still_in` is asked every two seconds; without it nobody is cut off. `with_blocks` adds `blocks` events.
    """
    # The request's own connection goes back first: it would be held as long as the answer takes, and a few dozen
    # answers at once would leave none for anybody.
    await sync_to_async(connections.close_all)()
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUE_LENGTH)
    writer = asyncio.create_task(_write(turn, caller, queue, with_blocks=with_blocks))
    guard = asyncio.create_task(_end_when_out(is_still_in, writer, queue)) if is_still_in else None
    _writers.add(writer)
    writer.add_done_callback(_writers.discard)
    try:
        yield _turn(turn)
        while True:
            try:
                # Not `wait_for`: until Python 3.12 it drops a cancellation that comes together with an item, and a
                # reader who left in the middle of a quick answer would never be noticed.
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    item = await queue.get()
            except TimeoutError:
                yield sse.KEEP_ALIVE
                continue
            if item is None:
                return
            yield item
    finally:
        if guard is not None:
            guard.cancel()
        _cut_off(writer)
        with suppress(asyncio.CancelledError):
            await asyncio.shield(writer)


async def replay(*, turn: Turn, with_blocks: bool = False) -> AsyncIterator[bytes]:
    """The events of a turn that has ended, told again: its calls, its answer as one text, and how it ended."""
    await sync_to_async(connections.close_all)()
    yield _turn(turn)
    for call in turn.tool_calls:
        yield sse.encode("tool_call", {name: call[name] for name in ("id", "name", "input")})
        if "summary" in call:
            yield _encode(_told_again(call), turn, with_html=with_blocks)
    if turn.assistant_message:
        yield _encode(TextWritten(turn.assistant_message), turn)
        if with_blocks:
            blocks = await asyncio.to_thread(render_blocks, turn.assistant_message)
            yield drawing.encode(ChangedBlocks(0, blocks))
    yield sse.encode("error", turn.error) if turn.error else _done(turn)


async def _end_when_out(is_still_in: StillIn, writer: asyncio.Task[None], queue: asyncio.Queue[bytes | None]) -> None:
    """End the answer as if its reader had left, and tell this one why; what they have not taken yet they do not get."""
    await until_out(is_still_in)
    _cut_off(writer)
    await asyncio.wait([writer])
    while not queue.empty():
        queue.get_nowait()
    queue.put_nowait(sse.encode("error", _as_data(AuthenticationRequired(THROWN_OUT))))
    queue.put_nowait(None)


async def cut_off_answers() -> None:
    """Keep what there is of every answer, as interrupted: a server that stops does this last."""
    if writers := {writer for writer in _writers if writer.get_loop() is asyncio.get_running_loop()}:
        for writer in writers:
            _cut_off(writer)
        await asyncio.wait(writers, timeout=STOP_SECONDS)


def _cut_off(writer: asyncio.Task[None]) -> None:
    """Once: a second time would cut off the save with which the first ends."""
    if not writer.cancelling():
        writer.cancel()


async def _write(turn: Turn, caller: Caller, queue: asyncio.Queue[bytes | None], *, with_blocks: bool = False) -> None:
    """Make the answer and save it, however it ends."""
    draft = Draft(tool_calls=list(turn.tool_calls))
    progress = asyncio.create_task(_save_progress(turn, caller, draft))
    blocks = Drawing(queue.put) if with_blocks else None
    try:
        deps = await as_caller(caller, deps_for, caller, now=timezone.now())
        told = await as_caller(caller, prompt.before, turn)
        async for event in loop.answer(message=turn.user_message, history=told, deps=deps):
            draft.add(event)
            await queue.put(_encode(event, turn, with_html=with_blocks))
            if blocks is not None and isinstance(event, TextWritten):
                blocks.feed(event.text)
        saved = await _save(turn, caller, draft.ended(Turn.Status.COMPLETE))
        if blocks is not None:
            await blocks.finish()
        await queue.put(await asyncio.to_thread(_done, saved or turn))
    except asyncio.CancelledError:
        await asyncio.shield(asyncio.create_task(_save(turn, caller, draft.ended(Turn.Status.INTERRUPTED))))
        raise
    except Exception as error:
        shown = _shown(error)
        with suppress(RecollectError):
            await _save(turn, caller, draft.ended(Turn.Status.FAILED, shown))
        if blocks is not None:
            await blocks.finish()
        await queue.put(sse.encode("error", _as_data(shown)))
    finally:
        progress.cancel()
        if blocks is not None:
            await blocks.cancel()
    await queue.put(None)


async def _save_progress(turn: Turn, caller: Caller, draft: Draft) -> None:
    """Keep what is there again and again, and show a sign of life while there is nothing new."""
    saved, idle = draft.snapshot(), 0.0
    while True:
        await asyncio.sleep(SAVE_EVERY_SECONDS)
        idle += SAVE_EVERY_SECONDS
        if (there := draft.snapshot()) == saved and idle < KEEP_ALIVE_SECONDS:
            continue
        text, calls = there
        with suppress(OperationalError, InterfaceError):
            await as_caller(
                caller, services.save_progress, turn_id=turn.pk, text=text, tool_calls=calls, now=timezone.now()
            )
            saved, idle = there, 0.0


async def _save(turn: Turn, caller: Caller, answer: Answer) -> Turn | None:
    """The last save, repeated while the database is away; raises `Unavailable` when it stays away."""
    for wait in LAST_SAVE_WAITS:
        try:
            saved = await as_caller(caller, services.finish_turn, turn_id=turn.pk, answer=answer)
            after_answer(turn, caller, answer)
            return saved
        except (OperationalError, InterfaceError):
            await asyncio.sleep(wait)
    logger.error("The answer of turn %s could not be saved", turn)
    raise Unavailable("The database is away, and the answer could not be kept. Try again.")


async def as_caller(caller: Caller, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run database work beside the loop, and give its connection back at once: streams outlive any pool."""

    def work() -> T:
        try:
            with acting_as(caller):
                return function(*args, **kwargs)
        finally:
            connections.close_all()

    return await sync_to_async(work, thread_sensitive=False)()


def _result(event: ToolReturned) -> dict[str, Any]:
    """What is kept of a result: the stored text for people, the place for whoever takes it back."""
    result: dict[str, Any] = {"summary": event.summary, "is_error": event.is_error}
    if event.place is not None:
        result |= {"stored": event.stored or "", "place": event.place}
    return result


def _told_again(call: dict[str, Any]) -> ToolReturned:
    """What `_result` kept; what has been taken back since cannot be again."""
    return ToolReturned(
        call["id"],
        call["summary"],
        is_error=call.get("is_error", False),
        stored=call.get("stored"),
        place=None if "undone_at" in call else call.get("place"),
    )


def _turn(turn: Turn) -> bytes:
    return sse.encode("turn", {"conversationId": str(turn.conversation_id), "turnNumber": turn.turn_number})


def _encode(event: AgentEvent, turn: Turn, *, with_html: bool = False) -> bytes:
    match event:
        case TextWritten(text=text):
            return sse.encode("delta", {"text": text})
        case ToolCalled(id=id_, name=name, input=input_):
            return sse.encode("tool_call", {"id": id_, "name": name, "input": input_})
        case ToolReturned():
            return sse.encode("tool_result", _result_data(event, turn, with_html=with_html))


def _result_data(event: ToolReturned, turn: Turn, *, with_html: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"id": event.id, "summary": event.summary}
    if with_html:
        data["html"] = str(render_summary(event.summary))
    if event.is_error:
        data["isError"] = True
    if event.place is not None:
        path = undo_path(turn.conversation_id, turn_number=turn.turn_number, call_id=event.id)
        data |= {"stored": event.stored or "", "undo": {"method": "POST", "href": path}}
    return data


def _done(turn: Turn) -> bytes:
    data = {
        "conversationId": str(turn.conversation_id),
        "turnNumber": turn.turn_number,
        "html": str(render(turn.assistant_message)),
    }
    return sse.encode("done", data)


def _shown(error: Exception) -> RecollectError:
    if isinstance(error, RecollectError):
        return error
    if isinstance(error, OperationalError | InterfaceError):
        return Unavailable("The database is away for the moment. Try again shortly.")
    logger.exception("An answer failed")
    return Unavailable("Something went wrong here. Try again.")


def _as_data(error: RecollectError) -> dict[str, Any]:
    return {"code": error.code, "detail": error.detail, "retryable": error.retryable}
