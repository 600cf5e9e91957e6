"""The JSON shapes of the REST API of chats and the account, in camel case, and OpenAPI parts of theirs."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BaseModel, Field

from core.errors import STATUSES
from core.isolation.acting import Caller
from core.responses import A_KEY, CONTENT_TYPE, KEY_SCHEMA
from core.text import without_values
from core.validation import LONGEST_PASSWORD, LONGEST_REFERENCE, Input, Output, text_limit
from intake.attachments.services import attachments_of
from intake.chats import idempotency
from intake.chats.consent import Decision
from intake.chats.lists import ConversationList
from intake.chats.reading import TurnWindow
from intake.chats.services import TurnRequest
from intake.chats.tree import Tree
from intake.chats.usage import Usage
from intake.llm.chat_options import ChatOptions
from intake.models import Attachment, Conversation, Turn
from intake.models.conversations import TITLE_LENGTH
from memory.sources_of_answers import AnswerSource, SourceOutput, sources_of


class TurnReference(Output):
    conversation_id: UUID
    turn_number: int


class ConversationOutput(Output):
    conversation_id: UUID
    title: str
    source: Annotated[str, Field(description="`chat`, or where it was brought along from.")]
    started_at: datetime
    last_active_at: datetime
    last_turn_number: Annotated[int, Field(description="Numbers of deleted turns are not given again.")]
    current_turn_number: Annotated[int | None, Field(description="The turn at the end of the chosen path.")] = None
    branched_from: Annotated[
        TurnReference | None,
        Field(description="For a branch: the turn above its first one. It may have been deleted since."),
    ] = None
    pinned_at: datetime | None = None
    archived_at: datetime | None = None
    model: Annotated[str | None, Field(description="What was chosen for it; none: the person's default answers.")] = (
        None
    )
    instructions: str | None = None
    temperature: float | None = None
    memory: Annotated[bool, Field(description="Whether what was said and kept elsewhere is used.")] = True
    web: Annotated[bool, Field(description="Whether answers may search the web and read pages.")] = False
    proposes: Annotated[bool, Field(description="Whether things to remember may be proposed from it.")] = True
    expires_at: Annotated[
        datetime | None, Field(description="A temporary chat goes then, if it is not left before.")
    ] = None

    @classmethod
    def of(cls, conversation: Conversation) -> Self:
        return cls(**_of(conversation))


class ConversationListOutput(Output):
    conversations: Annotated[list[ConversationOutput], Field(description="The most recently active first.")]
    more: Annotated[str | None, Field(description="For `?after=`: where the list goes on, if it does.")] = None

    @classmethod
    def of(cls, page: ConversationList) -> Self:
        shown = [ConversationOutput.of(conversation) for conversation in page.conversations]
        return cls(conversations=shown, more=str(page.more) if page.more else None)


class UsageOutput(Output):
    """Unknown values are omitted."""

    model: str | None = None
    input_tokens: Annotated[int | None, Field(description="Of all requests to the model together.")] = None
    output_tokens: int | None = None
    seconds: float | None = None
    finish_reason: Annotated[
        str | None, Field(description="`stop`; `length` for an answer that was cut at the model's limit; others.")
    ] = None
    thought_seconds: Annotated[float | None, Field(description="Of the seconds, those it thought.")] = None
    not_sent: Annotated[
        int | None, Field(description="How many earlier messages did not fit into the model's window, if any.")
    ] = None
    sent: Annotated[int | None, Field(description="How many did, the newest ones, if not all.")] = None

    @classmethod
    def of(cls, turn: Turn) -> Self | None:
        usage = Usage.of(turn.usage).for_readers()
        return cls(**usage) if usage else None


class AttachmentOutput(Output):
    id: UUID
    name: str
    type: Annotated[str, Field(description="The media type: by its first bytes, or else by its name.")]
    size: Annotated[int, Field(description="In bytes.")]
    sha256: str
    state: Annotated[str, Field(description="`waiting` until its text is read, then `read` or `unreadable`.")]
    kind: Annotated[str, Field(description="`file`; `pasted`, a text; `imported`.")]
    error: Annotated[str | None, Field(description="Why it cannot be read, or why not all of it.")] = None
    conversation_id: Annotated[UUID | None, Field(description="Where it was said, if a message names it.")] = None
    turn_number: int | None = None

    @classmethod
    def of(cls, attachment: Attachment) -> Self:
        of_row = {name: getattr(attachment, name) for name in cls.model_fields if name not in ("type", "error")}
        return cls(**of_row, type=attachment.media_type, error=(attachment.error or {}).get("message"))


class TurnOutput(Output):
    turn_id: Annotated[int, Field(description="By which an answer that is being written is followed and stopped.")]
    turn_number: int
    parent_turn_number: Annotated[
        int | None, Field(description="The turn that it follows; none for a first turn, and for a branch's.")
    ] = None
    user_message: str
    attachments: Annotated[list[AttachmentOutput] | None, Field(description="The files of the message.")] = None
    assistant_message: str
    reasoning: Annotated[str | None, Field(description="What a thinking model wrote before its answer.")] = None
    tool_calls: list[dict[str, Any]]
    status: str
    said_at: datetime
    usage: Annotated[UsageOutput | None, Field(description="What the answer took.")] = None
    versions: Annotated[
        list[int] | None, Field(description="The numbers of all turns in this one's place, its own among them.")
    ] = None
    sources: Annotated[
        list[SourceOutput] | None, Field(description="What the answer was given of the memory, the used ones first.")
    ] = None

    @classmethod
    def of(
        cls,
        turn: Turn,
        versions: list[int] | None,
        files: Iterable[Attachment],
        sources: Iterable[AnswerSource],
        **more: int,
    ) -> Self:
        return cls(
            sources=[each.output for each in sources] or None,
            turn_id=turn.pk,
            turn_number=turn.turn_number,
            parent_turn_number=turn.parent_number,
            user_message=turn.user_message,
            attachments=[AttachmentOutput.of(each) for each in files] or None,
            assistant_message=turn.assistant_message,
            reasoning=turn.reasoning or None,
            tool_calls=[without_values(call) for call in turn.tool_calls],
            status=turn.status,
            said_at=turn.said_at,
            usage=UsageOutput.of(turn),
            versions=versions,
            **more,
        )


class OneTurnOutput(TurnOutput):
    turns_from_here: Annotated[
        int, Field(description="The turn with all that follow it, in every version: as many go with `?from_here=`.")
    ]

    @classmethod
    def with_count(cls, turn: Turn, tree: Tree, caller: Caller) -> Self:
        number, sources = turn.turn_number, sources_of([turn], caller).get(turn.pk, [])
        below = len(tree.below(number))
        return cls.of(turn, tree.versions_of(number), attachments_of([turn])[turn.pk], sources, turns_from_here=below)


class ChosenOutput(Output):
    current_turn_number: Annotated[int, Field(description="The turn at the end of the path that is chosen now.")]


class ConversationWithTurnsOutput(ConversationOutput):
    turns: Annotated[
        list[TurnOutput],
        Field(description="At most 50 of one path, in order. A branch has the turns above its own in `branchedFrom`."),
    ]
    earlier: Annotated[int | None, Field(description="For `?before=`: there are turns before this one.")] = None
    later: Annotated[int | None, Field(description="For `?turn=`: there are turns from this one on.")] = None

    @classmethod
    def with_turns(cls, conversation: Conversation, window: TurnWindow, caller: Caller) -> Self:
        files, sources = attachments_of(window.turns), sources_of(window.turns, caller)
        return cls(
            **_of(conversation),
            turns=[
                TurnOutput.of(turn, window.versions[turn.turn_number], files[turn.pk], sources.get(turn.pk, []))
                for turn in window.turns
            ],
            earlier=window.earlier,
            later=window.later,
        )


class UndoneOutput(Output):
    undone_at: Annotated[datetime, Field(description="When it was taken back: now, or before.")]


class ChangeOfConversation(ChatOptions):
    """Omitted fields keep their value; the defaults mean nothing."""

    title: Annotated[
        str, Field(description=f"1 to {TITLE_LENGTH} characters.", json_schema_extra=text_limit(TITLE_LENGTH))
    ] = ""
    pinned: Annotated[bool, Field(description="Listed above the others.")] = False
    archived: Annotated[bool, Field(description="Listed apart; it is found by searches as before.")] = False


def _of(conversation: Conversation) -> dict[str, Any]:
    origin, number = conversation.branched_from, conversation.branched_after
    as_it_is = (
        "title",
        "source",
        "started_at",
        "last_active_at",
        "pinned_at",
        "archived_at",
        "temperature",
        "proposes",
    )
    return {
        **{name: getattr(conversation, name) for name in (*as_it_is, "expires_at")},
        "conversation_id": conversation.pk,
        "last_turn_number": conversation.turn_count,
        "current_turn_number": conversation.current_number,
        "branched_from": TurnReference(conversation_id=origin, turn_number=number) if origin and number else None,
        "model": conversation.model or None,
        "instructions": conversation.instructions or None,
        "memory": conversation.uses_memory,
        "web": conversation.uses_web,
    }


class PasswordConfirmation(Input):
    password: Annotated[str, Field(max_length=LONGEST_PASSWORD, description="The account's password, to make sure.")]


class AccountDeleted(BaseModel):
    """When the account was deleted, and how many rows with it."""

    deleted_at: datetime
    deleted: Annotated[dict[str, int], Field(description="Number of deleted rows by kind.")]
    also: Annotated[list[str], Field(description="What else is deleted, and what remains for a while.")]


CHAT_PATH = "/api/v1/intake/chat"
# It does not search, and overwrites nothing.
NOT_IN_CHAT = ("search_error", "conflict", "precondition_required", "already_decided", "gone")
CHAT_DESCRIPTION = """Say something, and read the answer as server-sent events: `turn` first (its `notSent` counts the
earlier messages that do not fit into the model's window), then `reasoning` (of a
thinking model), `tool_call`, `tool_result`, `approval` and `delta` as they happen, and `done`,
`waiting` (for the person) or `error` last. Each event's data is a line of JSON.
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
LEFT = {"type": "object", "properties": {"left": {"type": "integer"}}, "required": ["left"]}
DECIDE_DESCRIPTION = """Answer a call that waits (event `approval`), once. It takes the session of the person: no token
allows a call. When `left` is 0 the turn goes on, and is followed at its `events`."""
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
EVENTS = ["turn", "reasoning", "tool_call", "tool_result", "approval", "delta", "done", "waiting", "error"]
EVENT = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "event": {"enum": EVENTS},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}


def add_chat(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A drf-spectacular hook: the chat streams, so its view is not a DRF view, but belongs in the document."""
    stream = {"description": "The answer.", "content": {"text/event-stream": {"schema": EVENT}}}
    result["paths"][CHAT_PATH] = {
        "post": {
            **_operation("chat", CHAT_DESCRIPTION),
            "parameters": [CHAT_KEY],
            "requestBody": _body(TurnRequest),
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
    result["paths"][f"{TURN_PATH}/approvals/{{call_id}}"] = {
        "post": {
            **_operation("decide_call", DECIDE_DESCRIPTION),
            "security": [{"cookieAuth": []}],
            "parameters": [TURN_ID, {**TURN_ID, "name": "call_id"}],
            "requestBody": _body(Decision),
            "responses": {
                "202": _json("How many calls of the turn still wait.", LEFT),
                **_refusals(("validation_error", "already_decided", "gone", *OF_A_TURN)),
            },
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


def _body(model: type[BaseModel]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}


def _refusals(codes: Iterable[str]) -> dict[str, Any]:
    problem = {"content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    statuses = (STATUSES[code] for code in codes)
    return {str(status.value): {"description": status.phrase, **problem} for status in statuses}


def add_confirmation(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """A drf-spectacular hook: it assumes that a DELETE has no body, but deleting an account needs the password."""
    result["paths"]["/api/v1/account/"]["delete"]["requestBody"] = _body(PasswordConfirmation)
    return result
