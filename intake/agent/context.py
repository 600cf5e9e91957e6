"""The context of one answer: its user, its time and the user's notes; the model cannot set any of it."""

import secrets
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from typing import Any

from django.conf import settings
from django.utils.module_loading import import_string

from core.isolation.acting import Caller
from intake.agent.language_models import LanguageModel, model_for
from intake.models import ChatPreferences, Conversation, User, local_time


@dataclass(frozen=True, slots=True)
class Fence:
    """Recalled text reaches the model between markers that the text cannot contain, so that the model treats it as
    data.

    Each answer has a new marker. Earlier text cannot know it, and it is removed from text that is written meanwhile.
    """

    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def opening(self) -> str:
        return f"<data {self.mark}>"

    @property
    def closing(self) -> str:
        return f"</data {self.mark}>"

    def around(self, text: str) -> str:
        # Repeated, because removing a marker may form a new one.
        while self.mark in text:
            text = text.replace(self.mark, "")
        return f"{self.opening}\n{text}\n{self.closing}"


@dataclass(frozen=True, slots=True)
class ChatDeps:
    """`zone` is the user's; None for a visitor.

    `notes`, `about`: the beginnings of their MEMORY.md and their USER.md, if any. `how_to_answer`: their instructions
    for all chats; `instructions`: for this one.

    `model` is None in recall mode, and if no server lists one. `sees_reasons`: whether the model server's own words
    about a failure are for this user; they may contain an address or a piece of a key.
    """

    caller: Caller
    now: datetime
    zone: tzinfo | None = None
    notes: str = ""
    about: str = ""
    how_to_answer: str = ""
    instructions: str = ""
    model: LanguageModel | None = None
    temperature: float | None = None
    uses_memory: bool = True
    is_temporary: bool = False
    sees_reasons: bool = False
    fence: Fence = field(default_factory=Fence)

    @property
    def local_now(self) -> datetime:
        return local_time(self.now, self.zone or UTC)


def deps_for(caller: Caller, conversation: Conversation, *, now: datetime) -> ChatDeps:
    """Read the settings of the chat and the caller's notes.

    A user whose account was deleted is treated like a visitor.
    """
    deps = ChatDeps(
        caller=caller,
        now=now,
        instructions=conversation.instructions,
        model=model_for(conversation, caller),
        temperature=conversation.temperature,
        uses_memory=conversation.uses_memory,
        is_temporary=conversation.expires_at is not None,
    )
    user = User.objects.filter(pk=caller.user_id, is_visitor=False).first() if caller.user_id is not None else None
    if user is None:
        return deps
    preferences = ChatPreferences.objects.for_user(user).first() or ChatPreferences()
    deps = replace(
        deps, zone=user.zone, how_to_answer=preferences.how_to_answer, sees_reasons=user.is_staff and user.is_active
    )
    if not conversation.uses_memory:
        return deps
    return replace(deps, notes=_beginning(settings.CHAT_NOTES, user), about=_beginning(settings.CHAT_ABOUT, user))


def _beginning(path: str, user: User) -> str:
    length = settings.CHAT_NOTES_CHARACTERS
    if length <= 0:
        return ""
    # One more than needed shows whether there is more.
    notes: str = import_string(path)(user, length=length + 1)
    return notes if len(notes) <= length else notes[:length] + "\n… (cut here: search for the rest)"


# --- The events of an answer in this project's types, independent of any vendor ---


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """`id` is this project's own: vendors' ids are not always unique within an answer."""

    id: str
    name: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """`summary` is a line of Markdown for people, with links to the results.

    `stored` and `place` say what the call stored and where, so that it can be undone; None if it stored nothing.
    """

    id: str
    summary: str
    is_error: bool = False
    stored: str | None = None
    place: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TextWritten:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningWritten:
    """The reasoning of a thinking model. `seconds` is the thinking time of this answer so far; None if unknown."""

    text: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """The model has finished; `finish_reason` is None if its vendor gives none.

    The tokens are those of all requests for the answer, None if they were not counted.
    """

    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None


AgentEvent = ToolCalled | ToolReturned | TextWritten | ReasoningWritten
# Events that arrive in pieces; neighbours of one kind may be joined and split anywhere.
WRITTEN = (TextWritten, ReasoningWritten)
