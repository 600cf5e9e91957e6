"""Validates how a chat is answered (model, instructions, memory), for the API and for pages."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from core.errors import InvalidInput
from core.isolation.caller import Caller
from core.validation import Input, checked, text_limit
from intake.language_models import LanguageModel, checked_name, default_for, is_recall_mode, model_for, offered
from intake.models import Conversation
from intake.models.conversations import MODEL_NAME_LENGTH
from intake.services import ChatChoices

MAX_INSTRUCTIONS = 4_000
HOTTEST = 2.0
ONLY_NEW = "Only a new chat can be temporary."


class ChatOptions(Input):
    """Omitted fields stay unchanged; the schema's defaults have no effect."""

    model: Annotated[
        str | None,
        Field(
            max_length=MODEL_NAME_LENGTH,
            description="The name of a model of `GET /api/v1/models/`; empty for the person's default.",
        ),
    ] = None
    instructions: Annotated[
        str | None,
        Field(
            description=f"What the person asks of the model in this chat, at most {MAX_INSTRUCTIONS:,} characters.",
            json_schema_extra=text_limit(MAX_INSTRUCTIONS),
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Field(ge=0, le=HOTTEST, description="Left out for a model that takes none. `null`: the model's own default."),
    ] = None
    memory: Annotated[
        bool | None, Field(description="Whether the chat is answered with what the person said and kept elsewhere.")
    ] = None
    temporary: Annotated[
        bool | None,
        Field(
            description="A temporary chat is not searched, listed or exported, and goes when it is left or after a "
            "day. Only a new chat can be made so; `false` keeps one."
        ),
    ] = None

    def as_choices(self, caller: Caller) -> ChatChoices:
        """Raises `InvalidInput` for a model that the caller may not choose, and for instructions that are too long."""
        if self.instructions is not None:
            checked(self.instructions, field="instructions", max_length=MAX_INSTRUCTIONS, may_be_blank=True)
        return ChatChoices(
            model=None if self.model is None else checked_name(self.model, caller),
            instructions=self.instructions,
            temperature=self.temperature,
            keeps_default_temperature="temperature" in self.model_fields_set and self.temperature is None,
            uses_memory=self.memory,
            is_temporary=self.temporary,
        )


def refuse_temporary(wanted: ChatOptions) -> None:
    """For a chat that exists already."""
    if wanted.temporary:
        raise InvalidInput(ONLY_NEW, errors={"temporary": [ONLY_NEW]})


@dataclass(frozen=True, slots=True)
class OfferedChoices:
    """The choices that a page offers for a chat. `default` is the name of the model that answers without a choice."""

    models: list[LanguageModel]
    default: str
    selected: str
    hottest: float = HOTTEST
    longest: int = MAX_INSTRUCTIONS


def offered_choices(caller: Caller, conversation: Conversation | None = None) -> OfferedChoices | None:
    """None in recall mode, which offers no choice. Reads the user's preferences."""
    if is_recall_mode():
        return None
    default = default_for(caller)
    present = default if conversation is None else model_for(conversation, caller)
    models = offered(caller)
    if present is not None and present not in models:
        models.append(present)
    return OfferedChoices(models, default=default.name if default else "", selected=present.name if present else "")
