"""What leaves and enters the REST edge of intake, field by field, in the contract's camel case."""

from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from core.validation import Input, text_limit
from intake.models import Conversation, Turn
from intake.models.conversations import TITLE_LENGTH
from intake.reading import ConversationList, TurnWindow


class Output(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True)

    def as_data(self) -> dict[str, Any]:
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ConversationOutput(Output):
    conversation_id: UUID
    title: str
    source: Annotated[str, Field(description="`chat`, or where it was brought along from.")]
    started_at: datetime
    last_active_at: datetime
    last_turn_number: Annotated[int, Field(description="Numbers of deleted turns are not given again.")]

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


class TurnOutput(Output):
    turn_number: int
    user_message: str
    assistant_message: str
    tool_calls: list[dict[str, Any]]
    status: str
    said_at: datetime

    @classmethod
    def of(cls, turn: Turn) -> Self:
        return cls(
            turn_number=turn.turn_number,
            user_message=turn.user_message,
            assistant_message=turn.assistant_message,
            tool_calls=turn.tool_calls,
            status=turn.status,
            said_at=turn.said_at,
        )


class ConversationWithTurnsOutput(ConversationOutput):
    turns: Annotated[list[TurnOutput], Field(description="At most 50, in order.")]
    earlier: Annotated[int | None, Field(description="For `?before=`: there are turns before this one.")] = None
    later: Annotated[int | None, Field(description="For `?turn=`: there are turns from this one on.")] = None

    @classmethod
    def with_turns(cls, conversation: Conversation, window: TurnWindow) -> Self:
        return cls(
            **_of(conversation),
            turns=[TurnOutput.of(turn) for turn in window.turns],
            earlier=window.earlier,
            later=window.later,
        )


class UndoneOutput(Output):
    undone_at: Annotated[datetime, Field(description="When it was taken back: now, or before.")]


class Rename(Input):
    title: Annotated[
        str, Field(description=f"1 to {TITLE_LENGTH} characters.", json_schema_extra=text_limit(TITLE_LENGTH))
    ]


def _of(conversation: Conversation) -> dict[str, Any]:
    return {
        "conversation_id": conversation.pk,
        "title": conversation.title,
        "source": conversation.source,
        "started_at": conversation.started_at,
        "last_active_at": conversation.last_active_at,
        "last_turn_number": conversation.turn_count,
    }
