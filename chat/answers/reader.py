"""Reads an answer's log for one reader: the events as they are sent, their HTML, and the pace.

Streams an answer's log to one reader, at the reader's own pace.

A reader has no queue, only a position, so a reader who stops reading costs nothing and delays no other.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

from django.utils.translation import override

from chat.agent.context import AgentEvent, ReasoningWritten, TextWritten, ToolCalled, ToolReturned
from chat.agent.prompt import MESSAGE_TOO_LONG, ExceedsWindow
from chat.answers.log import NOWHERE, AnswerLog, Ending, EventId
from chat.answers.tool_call_view import draw
from core import responses
from core.errors import AuthenticationRequired, NotFound, RecollectError
from core.text import gettext_noop as _
from core.text import in_language, kept, restored, without_values
from intake.chats.tree import undo_path
from intake.chats.usage import Usage, thought_in_words
from intake.markdown import render, render_blocks
from intake.markdown.rendering import BlockStream, ChangedBlocks
from intake.models import Turn
from intake.revocation import IsAuthorized, is_authorized_now, wait_for_revocation

# --- Encodes the contract's events of an answer, as data and as server-sent events ---

THROWN_OUT = _("Your session has ended, or your token was revoked. What was written is kept.")


def encode_turn(turn: Turn, *, not_sent: int | None = None, sent: int | None = None) -> bytes:
    """The first event: a reader who gets it again starts over. `not_sent` and `sent`: how many of the earlier messages
    the model gets.
    """
    counted = {} if not_sent is None else {"notSent": not_sent} | ({"sent": sent} if not_sent and sent else {})
    data = {**_named(turn), "turnId": turn.pk, **counted}
    return responses.encode("turn", data, id=str(EventId(turn.attempt, NOWHERE)))


def encode_event(event: AgentEvent, turn: Turn, *, position: int = NOWHERE, language: str = "en") -> bytes:
    """`position` is the event's end in the log. An event without one returns its reader to the beginning, by its id.

    Without any id the reader would return to an earlier event, and get a part twice. `language` is that of the HTML,
    with which the page draws a call now and when it is loaded again.
    """
    id_ = str(EventId(turn.attempt, position))
    match event:
        case TextWritten(text=text):
            return responses.encode("delta", {"text": text}, id=id_)
        case ReasoningWritten(text=text, seconds=seconds):
            label = _in_language(language, thought_in_words, seconds)
            known = {} if seconds is None else {"seconds": seconds}
            return responses.encode("reasoning", {"text": text, "label": label} | known, id=id_)
        case ToolCalled():
            html = _in_language(language, draw, asdict(event), turn)
            return responses.encode("tool_call", asdict(event) | {"html": html}, id=id_)
        case ToolReturned():
            html = _in_language(language, draw, asdict(event.call) | kept_result(event), turn)
            return responses.encode("tool_result", _result_data(event, turn) | {"html": html}, id=id_)


def encode_blocks(changed: ChangedBlocks) -> bytes:
    """Without an id: a reader who returns gets all blocks."""
    return responses.encode("blocks", {"from": changed.start, "html": changed.html})


async def encode_ending(ending: Ending, turn: Turn, *, position: int = NOWHERE, language: str = "en") -> bytes:
    data = _failure_data(ending.data, language) if ending.name == "error" else ending.data
    if ending.turn is not None:
        data = data | await asyncio.to_thread(_in_language, language, _in_html, ending.turn)
    return responses.encode(ending.name, data, id=str(EventId(turn.attempt, position)))


def _in_html(turn: Turn) -> dict[str, str]:
    """What a page shows of a complete answer. Rendering it takes a while."""
    shown = {"html": str(render(turn.assistant_message)), "usageLine": Usage.of(turn.usage).in_words()}
    return shown | ({"reasoningHtml": str(render(turn.reasoning))} if turn.reasoning else {})


def encode_revoked(language: str = "en") -> bytes:
    return responses.encode("error", _failure_data(as_data(AuthenticationRequired(THROWN_OUT)), language))


def _failure_data(kept_error: dict[str, Any], language: str) -> dict[str, Any]:
    """An error as its reader gets it. One from another server's export may lack any field."""
    if "detail" not in kept_error:
        return kept_error
    return without_values(kept_error) | {"detail": in_language(restored(kept_error, "detail"), language)}


def ending_of(turn: Turn) -> Ending:
    """The last event of an ended turn. Each reader gets its HTML in the reader's language."""
    if turn.error:
        return Ending("error", turn.error)
    data: dict[str, Any] = _named(turn)
    if turn.status == Turn.Status.INTERRUPTED:
        data["status"] = turn.status
    if turn.usage:
        data["usage"] = Usage.of(turn.usage).in_camel_case()
    return Ending("done", data, turn)


def ending_by(error: RecollectError) -> Ending:
    return Ending("error", as_data(error))


def ending_of_deleted() -> Ending:
    return ending_by(NotFound(_("This message has been deleted.")))


def as_data(error: RecollectError) -> dict[str, Any]:
    """As a turn keeps it."""
    reason = {"reason": error.reason} if error.reason else {}
    # A page offers ways out of it.
    if isinstance(error, ExceedsWindow):
        reason["about"] = "message" if error.detail == MESSAGE_TOO_LONG else "window"
    return {
        "code": error.code,
        "detail": error.detail,
        "retryable": error.retryable,
        **reason,
        **kept(error.detail),
    }


def kept_result(event: ToolReturned) -> dict[str, Any]:
    """The parts of a result that a turn keeps: the found or stored text for people, and the place for undoing it."""
    result: dict[str, Any] = {"summary": event.summary, "is_error": event.is_error, **kept(event.summary)}
    if event.found is not None:
        result["found"] = event.found
    if event.place is not None:
        result |= {"stored": event.stored or "", "place": event.place}
    return result if event.undone_at is None else result | {"undone_at": event.undone_at}


def events_of_reasoning(turn: Turn) -> list[ReasoningWritten]:
    """The reasoning of a kept answer, if any, as one event."""
    seconds = Usage.of(turn.usage).thought_seconds
    return [ReasoningWritten(turn.reasoning, seconds)] if turn.reasoning else []


def events_of_call(call: dict[str, Any]) -> list[ToolCalled | ToolReturned]:
    """A kept call as it happened. An undone call cannot be undone again."""
    called = ToolCalled(id=call["id"], name=call.get("name", ""), input=call.get("input", {}))
    if "summary" not in call:
        return [called]
    returned = ToolReturned(
        called,
        restored(call, "summary"),
        is_error=call.get("is_error", False),
        stored=call.get("stored"),
        place=call.get("place"),
        found=call.get("found"),
        undone_at=call.get("undone_at"),
    )
    return [called, returned]


def _named(turn: Turn) -> dict[str, Any]:
    return {"conversationId": str(turn.conversation_id), "turnNumber": turn.turn_number}


def _result_data(event: ToolReturned, turn: Turn) -> dict[str, Any]:
    data: dict[str, Any] = {"id": event.id, "summary": event.summary}
    if event.is_error:
        data["isError"] = True
    if event.place is not None and event.undone_at is None:
        path = undo_path(turn.conversation_id, turn_number=turn.turn_number, call_id=event.id)
        data |= {"stored": event.stored or "", "undo": {"method": "POST", "href": path}}
    return data


# --- Renders an answer as HTML while it is written, once for all readers of its log who want HTML in a language ---
# The model's stream never waits for it: a separate task renders the log's text in a thread, at most ten times a second.
# Each reader has a view that knows the first block that the reader has not seen.

# Rendering occupies a processor: more threads would only slow the others down.
_threads = ThreadPoolExecutor(2, thread_name_prefix="drawing")


P = ParamSpec("P")
Drawn = TypeVar("Drawn")


def _in_language(language: str, draw: Callable[P, Drawn], *args: P.args, **kwargs: P.kwargs) -> Drawn:
    with override(language):
        return draw(*args, **kwargs)


class BlockRenderer:
    def __init__(self, log: AnswerLog, language: str) -> None:
        self._log = log
        self._language = language
        self._stream = BlockStream()
        self._fed = 0
        self.blocks: list[str] = []
        # Whether these are the blocks of the whole answer.
        self.is_finished = False
        self._views: WeakSet[ReaderView] = WeakSet()
        self._task = asyncio.create_task(self._draw())

    def open_view(self) -> "ReaderView":
        view = ReaderView(self)
        self._views.add(view)
        return view

    def close_view(self, view: "ReaderView") -> bool:
        """Returns whether other views are left; without any, rendering stops."""
        self._views.discard(view)
        if not self._views:
            self._task.cancel()
        return bool(self._views)

    async def _draw(self) -> None:
        loop = asyncio.get_running_loop()
        while not self.is_finished:
            # Read before the text: anything written in between is rendered next time.
            is_whole = self._log.is_over
            self._feed()
            if is_whole:
                self._show(await loop.run_in_executor(_threads, _in_language, self._language, self._stream.finish))
                self.is_finished = True
                self._log.notify()
            elif (pause := self._stream.seconds_until_due) == 0:
                self._show(await loop.run_in_executor(_threads, _in_language, self._language, self._stream.changes))
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._log.wait()

    def _feed(self) -> None:
        text = self._log.text
        if len(text) > self._fed:
            self._stream.feed(text[self._fed :])
            self._fed = len(text)

    def _show(self, changed: ChangedBlocks | None) -> None:
        if changed is None:
            return
        self.blocks[changed.start :] = changed.html
        for view in self._views:
            view.note(changed.start)
        self._log.notify()


class ReaderView:
    """The blocks that one reader has not seen yet."""

    def __init__(self, drawing: BlockRenderer) -> None:
        self._drawing = drawing
        # A reader who arrives, or returns, gets all blocks.
        self._unseen_from: int | None = 0 if drawing.blocks else None

    def note(self, start: int) -> None:
        self._unseen_from = start if self._unseen_from is None else min(start, self._unseen_from)

    @property
    def is_finished(self) -> bool:
        return self._drawing.is_finished

    def take(self) -> ChangedBlocks | None:
        if self._unseen_from is None:
            return None
        start, self._unseen_from = self._unseen_from, None
        return ChangedBlocks(start, self._drawing.blocks[start:])


# --- Streams an answer's log to one reader, at the reader's own pace ---

KEEP_ALIVE_SECONDS = 15
# The shortest time between two messages to a reader.
PAUSE_SECONDS = 0.03
PROMPT_SECONDS = 3


async def read(
    log: AnswerLog,
    *,
    after: int | None = None,
    view: ReaderView | None = None,
    is_authorized: IsAuthorized | None = None,
    language: str = "en",
) -> AsyncIterator[bytes]:
    """Server-sent events, from `turn` (or after the position `after`) to `done` or `error`.

    `is_authorized` is checked every two seconds; a reader without access gets nothing more. Ends without a last event
    if another attempt at the answer has begun.
    """
    # Two processes cut the reasoning, the calls and the text of one answer differently.
    position = after if after is not None and after <= log.position + 1 and not log.is_mirror else None
    guard = _guard(is_authorized, log.notify)
    try:
        if position is None:
            await _wait_for_prompt(log)
            yield encode_turn(log.turn, not_sent=log.not_sent, sent=log.sent)
        position = position or 0
        while not guard.done():
            chunk, position = _news(log, position, view, language)
            if chunk:
                yield chunk
                await asyncio.sleep(0 if log.is_over else PAUSE_SECONDS)
            elif log.is_over and (view is None or view.is_finished):
                break
            elif not await _is_notified(log):
                yield responses.KEEP_ALIVE
        if guard.done() or (log.ending and log.ending.is_cut_short and not await _may_stay(is_authorized)):
            yield encode_revoked(language)
        elif log.ending is not None:
            position = NOWHERE if log.is_mirror else log.position + 1
            yield await encode_ending(log.ending, log.turn, position=position, language=language)
    finally:
        guard.cancel()


async def replay(*, turn: Turn, with_blocks: bool = False, language: str = "en") -> AsyncIterator[bytes]:
    """The events of an ended turn again: its calls, its answer as one text, and its ending."""
    used = Usage.of(turn.usage)
    yield encode_turn(turn, not_sent=used.not_sent or 0, sent=used.sent)
    for thought in events_of_reasoning(turn):
        yield encode_event(thought, turn, language=language)
    for call in turn.tool_calls:
        for event in events_of_call(call):
            yield encode_event(event, turn, language=language)
    if turn.assistant_message:
        yield encode_event(TextWritten(turn.assistant_message), turn)
        if with_blocks:
            blocks = await asyncio.to_thread(_in_language, language, render_blocks, turn.assistant_message)
            yield encode_blocks(ChangedBlocks(0, blocks))
    yield await encode_ending(ending_of(turn), turn, language=language)


async def _wait_for_prompt(log: AnswerLog) -> None:
    """Waits until it is known how much of the conversation the model gets, for a moment; another process knows it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PROMPT_SECONDS):
            while log.not_sent is None and not log.is_mirror and not log.is_over and not log.position:
                await log.wait()


def _news(log: AnswerLog, position: int, view: ReaderView | None, language: str) -> tuple[bytes, int]:
    events = log.since(position)
    encoded = [
        encode_event(event, log.turn, position=NOWHERE if log.is_mirror else end, language=language)
        for end, event in events
    ]
    if view is not None and (changed := view.take()) is not None:
        encoded.append(encode_blocks(changed))
    return b"".join(encoded), events[-1][0] if events else position


async def _is_notified(log: AnswerLog) -> bool:
    """False if nothing has happened for so long that a proxy may close the connection."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_SECONDS):
            await log.wait()
    except TimeoutError:
        return False
    return True


def _guard(is_authorized: IsAuthorized | None, notify: Callable[[], None]) -> asyncio.Future[None]:
    if is_authorized is None:
        return asyncio.get_running_loop().create_future()
    guard = asyncio.create_task(wait_for_revocation(is_authorized))
    guard.add_done_callback(lambda _: notify())
    return guard


async def _may_stay(is_authorized: IsAuthorized | None) -> bool:
    """An answer may have been cut off because its starter lost access, and this reader may be the starter."""
    return is_authorized is None or await is_authorized_now(is_authorized)
