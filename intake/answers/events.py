"""Encodes the contract's events of an answer, as data and as server-sent events."""

from typing import Any

from core.errors import AuthenticationRequired, NotFound, RecollectError
from intake import sse
from intake.agent.events import AgentEvent, ReasoningWritten, TextWritten, ToolCalled, ToolReturned
from intake.answers.log import NOWHERE, Ending, EventId
from intake.links import undo_path
from intake.markdown import render, render_summary
from intake.markdown.streaming import ChangedBlocks
from intake.models import Turn
from intake.usage import Usage

THROWN_OUT = "Your session has ended, or your token was revoked. What was written is kept."


def encode_turn(turn: Turn) -> bytes:
    """The first event: a reader who gets it again starts over."""
    return sse.encode("turn", {**_named(turn), "turnId": turn.pk}, id=str(EventId(turn.attempt, NOWHERE)))


def encode_event(event: AgentEvent, turn: Turn, *, position: int = NOWHERE, with_html: bool = False) -> bytes:
    """`position` is the event's end in the log. An event without one returns its reader to the beginning, by its id.

    Without any id the reader would return to an earlier event, and get a part twice.
    """
    id_ = str(EventId(turn.attempt, position))
    match event:
        case TextWritten(text=text):
            return sse.encode("delta", {"text": text}, id=id_)
        case ReasoningWritten(text=text, seconds=seconds):
            return sse.encode("reasoning", {"text": text} | ({} if seconds is None else {"seconds": seconds}), id=id_)
        case ToolCalled(id=call_id, name=name, input=input_):
            return sse.encode("tool_call", {"id": call_id, "name": name, "input": input_}, id=id_)
        case ToolReturned():
            return sse.encode("tool_result", _result_data(event, turn, with_html=with_html), id=id_)


def encode_blocks(changed: ChangedBlocks) -> bytes:
    """Without an id: a reader who returns gets all blocks."""
    return sse.encode("blocks", {"from": changed.start, "html": changed.html})


def encode_ending(ending: Ending, turn: Turn, *, position: int = NOWHERE) -> bytes:
    return sse.encode(ending.name, ending.data, id=str(EventId(turn.attempt, position)))


def encode_thrown_out() -> bytes:
    return sse.encode("error", as_data(AuthenticationRequired(THROWN_OUT)))


def ending_of(turn: Turn) -> Ending:
    """The last event of an ended turn. Rendering its answer takes a while."""
    if turn.error:
        return Ending("error", turn.error)
    data: dict[str, Any] = {**_named(turn), "html": str(render(turn.assistant_message))}
    if turn.reasoning:
        data["reasoningHtml"] = str(render(turn.reasoning))
    if turn.status == Turn.Status.INTERRUPTED:
        data["status"] = turn.status
    if turn.usage:
        data["usage"] = Usage.of(turn.usage).in_camel_case()
    return Ending("done", data)


def ending_by(error: RecollectError) -> Ending:
    return Ending("error", as_data(error))


def ending_of_deleted() -> Ending:
    return ending_by(NotFound("This message has been deleted."))


def as_data(error: RecollectError) -> dict[str, Any]:
    return {"code": error.code, "detail": error.detail, "retryable": error.retryable}


def kept_result(event: ToolReturned) -> dict[str, Any]:
    """The parts of a result that a turn keeps: the stored text for people, and the place for undoing it."""
    result: dict[str, Any] = {"summary": event.summary, "is_error": event.is_error}
    if event.place is not None:
        result |= {"stored": event.stored or "", "place": event.place}
    return result


def events_of_reasoning(turn: Turn) -> list[ReasoningWritten]:
    """The reasoning of a kept answer, if any, as one event."""
    seconds = Usage.of(turn.usage).thought_seconds
    return [ReasoningWritten(turn.reasoning, seconds)] if turn.reasoning else []


def events_of_call(call: dict[str, Any]) -> list[ToolCalled | ToolReturned]:
    """A kept call as it happened. An undone call cannot be undone again."""
    events: list[ToolCalled | ToolReturned] = [ToolCalled(id=call["id"], name=call["name"], input=call["input"])]
    if "summary" in call:
        returned = ToolReturned(
            call["id"],
            call["summary"],
            is_error=call.get("is_error", False),
            stored=call.get("stored"),
            place=None if "undone_at" in call else call.get("place"),
        )
        events.append(returned)
    return events


def _named(turn: Turn) -> dict[str, Any]:
    return {"conversationId": str(turn.conversation_id), "turnNumber": turn.turn_number}


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
