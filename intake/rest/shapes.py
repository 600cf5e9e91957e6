"""The JSON shapes of intake's REST API, in the contract's camel case."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from core.validation import text_limit
from intake.choices import ChatOptions
from intake.listing import ConversationList
from intake.models import Conversation, Turn
from intake.models.conversations import TITLE_LENGTH
from intake.paths import Tree
from intake.reading import TurnWindow
from intake.usage import Usage


class Output(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    def as_data(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


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
    """What is not known is left out."""

    model: str | None = None
    input_tokens: Annotated[int | None, Field(description="Of all requests to the model together.")] = None
    output_tokens: int | None = None
    seconds: float | None = None
    finish_reason: Annotated[
        str | None, Field(description="`stop`; `length` for an answer that was cut at the model's limit; others.")
    ] = None
    thought_seconds: Annotated[float | None, Field(description="Of the seconds, those it thought.")] = None

    @classmethod
    def of(cls, turn: Turn) -> Self | None:
        usage = Usage.of(turn.usage).as_data()
        return cls(**usage) if usage else None


class TurnOutput(Output):
    turn_id: Annotated[int, Field(description="By which an answer that is being written is followed and stopped.")]
    turn_number: int
    parent_turn_number: Annotated[
        int | None, Field(description="The turn that it follows; none for a first turn, and for a branch's.")
    ] = None
    user_message: str
    assistant_message: str
    reasoning: Annotated[str | None, Field(description="What a thinking model wrote before its answer.")] = None
    tool_calls: list[dict[str, Any]]
    status: str
    said_at: datetime
    usage: Annotated[UsageOutput | None, Field(description="What the answer took.")] = None
    versions: Annotated[
        list[int] | None, Field(description="The numbers of all turns in this one's place, its own among them.")
    ] = None

    @classmethod
    def of(cls, turn: Turn, *, versions: list[int] | None = None) -> Self:
        return cls(**cls._fields(turn, versions))

    @staticmethod
    def _fields(turn: Turn, versions: list[int] | None) -> dict[str, Any]:
        return dict(
            turn_id=turn.pk,
            turn_number=turn.turn_number,
            parent_turn_number=turn.parent_number,
            user_message=turn.user_message,
            assistant_message=turn.assistant_message,
            reasoning=turn.reasoning or None,
            tool_calls=turn.tool_calls,
            status=turn.status,
            said_at=turn.said_at,
            usage=UsageOutput.of(turn),
            versions=versions,
        )


class OneTurnOutput(TurnOutput):
    turns_from_here: Annotated[
        int, Field(description="The turn with all that follow it, in every version: as many go with `?from_here=`.")
    ]

    @classmethod
    def with_count(cls, turn: Turn, tree: Tree) -> Self:
        number = turn.turn_number
        return cls(**cls._fields(turn, tree.versions_of(number)), turns_from_here=len(tree.below(number)))


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
    def with_turns(cls, conversation: Conversation, window: TurnWindow) -> Self:
        return cls(
            **_of(conversation),
            turns=[TurnOutput.of(turn, versions=window.versions[turn.turn_number]) for turn in window.turns],
            earlier=window.earlier,
            later=window.later,
        )


class UndoneOutput(Output):
    undone_at: Annotated[datetime, Field(description="When it was taken back: now, or before.")]


class ChangeOfConversation(ChatOptions):
    """What is left out stays as it is; the defaults mean nothing."""

    title: Annotated[
        str, Field(description=f"1 to {TITLE_LENGTH} characters.", json_schema_extra=text_limit(TITLE_LENGTH))
    ] = ""
    pinned: Annotated[bool, Field(description="Listed above the others.")] = False
    archived: Annotated[bool, Field(description="Listed apart; it is found by searches as before.")] = False


def _of(conversation: Conversation) -> dict[str, Any]:
    return {
        "conversation_id": conversation.pk,
        "title": conversation.title,
        "source": conversation.source,
        "started_at": conversation.started_at,
        "last_active_at": conversation.last_active_at,
        "last_turn_number": conversation.turn_count,
        "current_turn_number": conversation.current_number,
        "branched_from": _origin(conversation),
        "pinned_at": conversation.pinned_at,
        "archived_at": conversation.archived_at,
        "model": conversation.model or None,
        "instructions": conversation.instructions or None,
        "temperature": conversation.temperature,
        "memory": conversation.uses_memory,
        "expires_at": conversation.expires_at,
    }


def _origin(conversation: Conversation) -> TurnReference | None:
    origin, number = conversation.branched_from, conversation.branched_after
    return None if origin is None or number is None else TurnReference(conversation_id=origin, turn_number=number)
