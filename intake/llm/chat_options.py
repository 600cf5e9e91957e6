"""How a chat is answered (model, instructions, memory), validated for the API and for pages."""

from typing import Annotated, Any

from pydantic import Field

from core.errors import InvalidInput
from core.isolation.acting import Caller
from core.text import gettext_noop as _
from core.validation import Input, checked, text_limit
from intake.llm.language_models import checked_name, default_for, is_recall_mode, model_for, offered
from intake.models import Conversation
from intake.models.conversations import MODEL_NAME_LENGTH

MAX_INSTRUCTIONS = 4_000
HOTTEST = 2.0
ONLY_NEW = _("Only a new chat can be temporary.")


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
    web: Annotated[
        bool | None,
        Field(description="Whether answers may search the web and read pages, if staff have chosen a search."),
    ] = None
    proposes: Annotated[
        bool | None,
        Field(
            description="Whether the chat is read once it has ended, for things to remember that are then proposed. "
            "It takes effect for a person who agreed to that in their account; never for a temporary chat."
        ),
    ] = None
    temporary: Annotated[
        bool | None,
        Field(
            description="A temporary chat is not searched, listed or exported, and goes when it is left or after a "
            "day. Only a new chat can be made so; `false` keeps one."
        ),
    ] = None

    def check(self, caller: Caller, *, is_new: bool = False) -> None:
        """Raises `InvalidInput` for a model that the caller may not choose, for instructions that are too long, and for
        a present chat that is to become temporary.
        """
        if self.temporary and not is_new:
            raise InvalidInput(ONLY_NEW, errors={"temporary": [ONLY_NEW]})
        if self.instructions is not None:
            checked(self.instructions, field="instructions", max_length=MAX_INSTRUCTIONS, may_be_blank=True)
        if self.model is not None:
            checked_name(self.model, caller)

    @property
    def resets_temperature(self) -> bool:
        return self.temperature is None and "temperature" in self.model_fields_set

    def apply_to(self, conversation: Conversation) -> list[str]:
        """Set them on a conversation whose row is locked, or new; returns the changed fields."""
        requested = {
            "model": self.model,
            "instructions": None if self.instructions is None else self.instructions.replace("\x00", "").strip(),
            "temperature": self.temperature,
            "uses_memory": self.memory,
            "uses_web": self.web,
            "proposes": self.proposes,
        }
        changed = [name for name, value in requested.items() if value is not None]
        changed += ["temperature"] if self.resets_temperature else []
        for name in changed:
            setattr(conversation, name, requested[name])
        return changed


def offered_choices(caller: Caller, conversation: Conversation | None = None) -> dict[str, Any] | None:
    """What a page offers for a chat: the `models`, the selected `model`, and the limits of the other fields.

    None in recall mode, which offers no choice. Reads the user's preferences.
    """
    if is_recall_mode():
        return None
    present = default_for(caller) if conversation is None else model_for(conversation, caller)
    models = offered(caller)
    if present is not None and present not in models:
        models.append(present)
    limits = {"hottest": HOTTEST, "longest": MAX_INSTRUCTIONS}
    return {"models": models, "model": present, "selected": present.name if present else "", **limits}
