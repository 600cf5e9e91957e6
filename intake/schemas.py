"""OpenAPI descriptions of the responses that all endpoints share."""

from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from pydantic import BaseModel, Field

from core.errors import STATUSES
from core.problems import CONTENT_TYPE
from core.validation import LONGEST_PASSWORD, LONGEST_REFERENCE, Input
from intake import idempotency


class Problem(BaseModel):
    """A failure (RFC 9457)."""

    type: str
    title: Annotated[str, Field(description="The status in words.")]
    status: int
    detail: Annotated[str, Field(description="A sentence for a person.")]
    code: Annotated[str, Field(description="What went wrong, for a program.", examples=sorted(STATUSES))]
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later.")]
    errors: Annotated[dict[str, list[str]] | None, Field(description="What is wrong with each field.")] = None


class PasswordConfirmation(Input):
    password: Annotated[str, Field(max_length=LONGEST_PASSWORD, description="The account's password, to make sure.")]


class DeletionStatement(BaseModel):
    """What went with an account, and when."""

    format: str
    account: Annotated[int, Field(description="Its number, which no other account will have.")]
    deleted_at: datetime
    deleted: Annotated[dict[str, int], Field(description="Numbers of rows, by what they were.")]
    also: Annotated[list[str], Field(description="What else goes, and what stays for a while.")]
    signed: Annotated[str, Field(description="At `/account/deleted/` and this, the server knows its word again.")]


def problems(*statuses: int) -> dict[tuple[int, str], Any]:
    """For `extend_schema(responses=…)`. An endpoint with authentication may also answer 403 and 429."""
    known = {403, 429} if HTTPStatus.UNAUTHORIZED in statuses else set()
    return {(status, CONTENT_TYPE): Problem for status in sorted({*statuses, *known})}


# The header that makes a repeated request harmless; each endpoint describes its effect.
KEY_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[\x21-\x7e]+$"}
A_KEY = "Any text of your own, 1 to 255 visible ASCII characters"

CHAT_PATH = "/api/v1/intake/chat"
# It does not search, and overwrites nothing.
NOT_IN_CHAT = ("search_error", "conflict", "precondition_required")
CHAT_DESCRIPTION = """Say something, and read the answer as server-sent events: `turn` first, then `reasoning` (of a
thinking model), `tool_call`, `tool_result` and `delta` as they happen, and `done` or `error` last. Each event's data is
a line of JSON.
A reader who leaves ends nothing: the answer is followed by the `turnId` of the first event, and stopped by it."""
TURN_PATH = "/api/v1/intake/turns/{turn_id}"
FOLLOW_DESCRIPTION = """The events of a turn's answer to its end, from the start or behind the event that
`Last-Event-ID` names. Where a reader cannot go on from there, `turn` comes again, and everything anew."""
TURN_ID = {"name": "turn_id", "in": "path", "required": True, "schema": {"type": "string"}}
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "schema": {"type": "string", "maxLength": LONGEST_REFERENCE},
    "description": "The `id` of the last event that was received.",
}
STOPPED = {
    "type": "object",
    "properties": {"turnId": {"type": "integer"}, "status": {"enum": ["complete", "interrupted", "failed"]}},
    "required": ["turnId", "status"],
}
ANSWERING = {
    "type": "object",
    "properties": {
        "answers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "turnId": {"type": "integer"},
                    "conversationId": {"type": "string", "format": "uuid"},
                },
                "required": ["turnId", "conversationId"],
            },
        }
    },
    "required": ["answers"],
}
# The failures of an answer that was started before.
OF_A_TURN = ("authentication_required", "insufficient_scope", "not_found", "rate_limited", "unavailable")


CHAT_KEY = {
    "name": idempotency.HEADER,
    "in": "header",
    "schema": KEY_SCHEMA,
    "description": f"{A_KEY}: the same request sent again with it within 24 hours makes no second turn. A turn that "
    f"has its whole answer is told again, marked `{idempotency.REPLAYED}: true`; one that broke off is answered anew; "
    "one that is still being answered is followed from the start.",
}
EVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"enum": ["turn", "reasoning", "tool_call", "tool_result", "delta", "done", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}


def add_chat(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A drf-spectacular hook: the chat streams, so its view is not a DRF view, but belongs in the document."""
    from intake.views.chat import ChatMessage

    stream = {"description": "The answer.", "content": {"text/event-stream": {"schema": EVENT}}}
    result["paths"][CHAT_PATH] = {
        "post": {
            **_operation("chat", CHAT_DESCRIPTION),
            "parameters": [CHAT_KEY],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": ChatMessage.model_json_schema()}},
            },
            "responses": {"200": stream, **_refusals(code for code in STATUSES if code not in NOT_IN_CHAT)},
        }
    }
    result["paths"][f"{TURN_PATH}/events"] = {
        "get": {
            **_operation("follow_answer", FOLLOW_DESCRIPTION),
            "parameters": [TURN_ID, LAST_EVENT_ID],
            "responses": {"200": stream, **_refusals(("validation_error", *OF_A_TURN))},
        }
    }
    result["paths"][f"{TURN_PATH}/stop"] = {
        "post": {
            **_operation("stop_answer", "End an answer within a second; what was written stays. Twice is harmless."),
            "parameters": [TURN_ID],
            "responses": {"200": _json("How the turn has ended.", STOPPED), **_refusals(OF_A_TURN)},
        }
    }
    result["paths"]["/api/v1/intake/answering"] = {
        "get": {
            **_operation("list_open_answers", "The caller's turns that are being answered."),
            "responses": {
                "200": _json("The oldest first.", ANSWERING),
                **_refusals(code for code in OF_A_TURN if code != "not_found"),
            },
        }
    }
    return result


def _operation(name: str, description: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": name,
        "description": description,
        "tags": ["intake"],
        "security": [{"accessToken": []}, {"cookieAuth": []}],
    }


def _json(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _refusals(codes: Iterable[str]) -> dict[str, Any]:
    problem = {"content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    statuses = (STATUSES[code] for code in codes)
    return {str(status.value): {"description": status.phrase, **problem} for status in statuses}


def add_confirmation(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A drf-spectacular hook: it assumes that a DELETE has no body, but deleting an account needs the password."""
    result["paths"]["/api/v1/account/"]["delete"]["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": PasswordConfirmation.model_json_schema()}},
    }
    return result
