"""Streams an answer's log to one reader, at the reader's own pace, as the contract's server-sent events.

A reader has no queue, only a position, so a reader who stops reading costs nothing and delays no other.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from pydantic.alias_generators import to_camel

from chat.agent.context import AgentEvent, ApprovalAsked, ReasoningWritten, TextWritten, ToolCalled, ToolReturned
from chat.answers.blocks import BlockRenderer, drawn_in
from chat.answers.database import as_caller
from chat.answers.log import NOWHERE, AnswerLog, Ending, EventId
from chat.answers.tool_call_view import draw
from core import event_streams
from core.errors import AuthenticationRequired, NotFound, RateLimited, RecollectError
from core.isolation.acting import Caller
from core.text import gettext_noop as _
from core.text import in_language, kept, restored, without_values
from intake.chats.prompts import Prompt
from intake.chats.tree import undo_path
from intake.chats.usage import Usage, thought_in_words
from intake.markdown import render, render_blocks
from intake.markdown.streaming import ChangedBlocks
from intake.models import Turn
from intake.models.tools import WAITS_FOR
from intake.revocation import IsAuthorized, is_authorized_now, wait_for_revocation
from memory.sources_of_answers import in_words, places_cited, sources_of

THROWN_OUT = _("Your session has ended, or your token was revoked. What was written is kept.")


def encode_turn(turn: Turn, *, not_sent: int | None = None, sent: int | None = None) -> bytes:
    """The first event: a reader who gets it again starts over. `not_sent` and `sent`: how many of the earlier messages
    the model gets.
    """
    counted = {} if not_sent is None else {"notSent": not_sent} | ({"sent": sent} if not_sent and sent else {})
    data = {**_named(turn), "turnId": turn.pk, **counted}
    return event_streams.encode("turn", data, id=str(EventId(turn.attempt, NOWHERE)))


def encode_event(event: AgentEvent, turn: Turn, *, position: int = NOWHERE, language: str = "en") -> bytes:
    """`position` is the event's end in the log. An event without one returns its reader to the beginning, by its id.

    Without any id the reader would return to an earlier event, and get a part twice. `language` is that of the HTML,
    with which the page draws a call now and when it is loaded again.
    """
    data: dict[str, Any]
    drawn: dict[str, Any] = {}
    match event:
        case TextWritten(text=text):
            name, data = "delta", {"text": text}
        case ReasoningWritten(text=text, seconds=seconds):
            name, data = "reasoning", {"text": text, "label": drawn_in(language, thought_in_words, seconds)}
            data |= {} if seconds is None else {"seconds": seconds}
        case ToolCalled():
            name, data, drawn = "tool_call", event.as_data(), event.as_data()
        case ApprovalAsked(call=call, approval=approval):
            name, data = "approval", call.as_data()
            drawn = {**data, "approval": approval, "waits": True}
        case ToolReturned(call=call):
            name, data, drawn = "tool_result", _result_data(event, turn), call.as_data() | kept_result(event)
    if drawn:
        data["html"] = drawn_in(language, draw, drawn, turn)
    return event_streams.encode(name, data, id=str(EventId(turn.attempt, position)))


def encode_blocks(changed: ChangedBlocks) -> bytes:
    """Without an id: a reader who returns gets all blocks."""
    return event_streams.encode("blocks", {"from": changed.start, "html": changed.html})


async def encode_ending(
    ending: Ending, *, caller: Caller | None = None, id_: EventId | None = None, language: str
) -> bytes:
    """An error from another server's export may lack any field. Rendering a complete answer takes a while."""
    data, turn = ending.data, ending.turn
    if ending.name == "error" and "detail" in data:
        data = without_values(data) | {"detail": in_language(restored(data, "detail"), language)}
    if turn is not None:
        has_any = bool(Prompt.of(turn.prompt).sources)
        sources = (await as_caller(caller, sources_of, [turn], caller))[turn.pk] if caller and has_any else []
        cited = places_cited(sources) if has_any else {}
        html = await asyncio.to_thread(drawn_in, language, render, turn.assistant_message, cited)
        line = drawn_in(language, Usage.of(turn.usage).in_words)
        of_memory = drawn_in(language, in_words, [each.part for each in sources]) if has_any else ""
        data = data | {"html": str(html), "usageLine": line, "sourcesLine": of_memory}
        data["sources"] = [source.output.as_data() for source in sources]
        if turn.reasoning:
            data["reasoningHtml"] = str(await asyncio.to_thread(drawn_in, language, render, turn.reasoning))
    return event_streams.encode(ending.name, data, id=None if id_ is None else str(id_))


def ending_of(turn: Turn) -> Ending:
    """The last event of an ended turn. Each reader gets its HTML in the reader's language."""
    if turn.error:
        return Ending("error", turn.error)
    if turn.status == Turn.Status.WAITING:
        return Ending("waiting", _named(turn) | {"until": (turn.updated_at + WAITS_FOR).isoformat()})
    data: dict[str, Any] = _named(turn)
    if turn.status == Turn.Status.INTERRUPTED:
        data["status"] = turn.status
    if turn.usage:
        data["usage"] = {to_camel(name): value for name, value in Usage.of(turn.usage).for_readers().items()}
    return Ending("done", data, turn)


def ending_by(error: RecollectError) -> Ending:
    return Ending("error", as_data(error))


def ending_of_deleted() -> Ending:
    return ending_by(NotFound(_("This message has been deleted.")))


def as_data(error: RecollectError) -> dict[str, Any]:
    """As a turn keeps it."""
    reason: dict[str, Any] = {"reason": error.reason} if error.reason else {}
    if error.about:
        reason["about"] = error.about
    elif isinstance(error, RateLimited) and error.retry_after:
        reason["retryAfter"] = error.retry_after
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
        result |= {"found": event.found, "shows": list(event.shows)}
    if event.place is not None:
        result |= {"stored": event.stored or "", "place": event.place}
    return result if event.undone_at is None else result | {"undone_at": event.undone_at}


def events_of_reasoning(turn: Turn) -> list[ReasoningWritten]:
    """The reasoning of a kept answer, if any, as one event."""
    seconds = Usage.of(turn.usage).thought_seconds
    return [ReasoningWritten(turn.reasoning, seconds)] if turn.reasoning else []


def events_of_call(call: dict[str, Any]) -> list[ToolCalled | ToolReturned | ApprovalAsked]:
    """A kept call as it happened. An undone call cannot be undone again."""
    of_server = call.get("origin", ""), call.get("tool", "")
    called = ToolCalled(call["id"], call.get("name", ""), call.get("input", {}), *of_server)
    if "summary" not in call:
        waits = "approval" in call and "decision" not in call["approval"]
        return [called, *([ApprovalAsked(called, call["approval"])] if waits else [])]
    returned = ToolReturned(
        called,
        restored(call, "summary"),
        is_error=call.get("is_error", False),
        stored=call.get("stored"),
        place=call.get("place"),
        found=call.get("found"),
        shows=call.get("shows", []),
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


KEEP_ALIVE_SECONDS = 15


async def read(
    log: AnswerLog,
    *,
    after: int | None = None,
    drawing: BlockRenderer | None = None,
    caller: Caller | None = None,
    is_authorized: IsAuthorized | None = None,
    language: str = "en",
) -> AsyncIterator[bytes]:
    """Server-sent events, from `turn` (or after the position `after`) to `done` or `error`.

    `is_authorized` is checked every two seconds; a reader without access gets nothing more. Ends without a last event
    if another attempt at the answer has begun.
    """
    # Two processes cut the reasoning, the calls and the text of one answer differently.
    position = after if after is not None and after <= log.position + 1 and not log.is_mirror else None
    access_ends = wait_for_revocation(is_authorized) if is_authorized else asyncio.Event().wait()
    guard: asyncio.Task[Any] = asyncio.create_task(access_ends)
    guard.add_done_callback(lambda _: log.notify())
    seen, changed = 0, None
    try:
        if position is None:
            # Waits a moment until it is known how much of the conversation the model gets; another process knows it.
            with suppress(TimeoutError):
                async with asyncio.timeout(3):
                    while log.not_sent is None and not log.is_mirror and not log.is_over and not log.position:
                        await log.wait()
            yield encode_turn(log.turn, not_sent=log.not_sent, sent=log.sent)
        position = position or 0
        while not guard.done():
            chunk = b""
            for position, event in log.since(position):  # noqa: B020 - the position of the last event is the reader's
                id_ = NOWHERE if log.is_mirror else position
                chunk += encode_event(event, log.turn, position=id_, language=language)
            if drawing is not None:
                seen, changed = drawing.since(seen)
            if changed is not None:
                chunk += encode_blocks(changed)
            if chunk:
                yield chunk
                # The shortest time between two messages to a reader.
                await asyncio.sleep(0 if log.is_over else 0.03)
            elif log.is_over and (drawing is None or drawing.is_finished):
                break
            else:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await log.wait()
                except TimeoutError:
                    # A proxy may close a connection on which nothing happens.
                    yield event_streams.KEEP_ALIVE
        # An answer may have been cut off because its starter lost access, and this reader may be the starter.
        is_cut_short = log.ending is not None and log.ending.is_cut_short and is_authorized is not None
        if guard.done() or (is_cut_short and is_authorized and not await is_authorized_now(is_authorized)):
            yield await encode_ending(ending_by(AuthenticationRequired(THROWN_OUT)), language=language)
        elif log.ending is not None:
            end = EventId(log.turn.attempt, NOWHERE if log.is_mirror else log.position + 1)
            yield await encode_ending(log.ending, caller=caller, id_=end, language=language)
    finally:
        guard.cancel()


async def replay(
    *, turn: Turn, caller: Caller, with_blocks: bool = False, language: str = "en"
) -> AsyncIterator[bytes]:
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
            blocks = await asyncio.to_thread(drawn_in, language, render_blocks, turn.assistant_message)
            yield encode_blocks(ChangedBlocks(0, blocks))
    end = EventId(turn.attempt, NOWHERE)
    yield await encode_ending(ending_of(turn), caller=caller, id_=end, language=language)
