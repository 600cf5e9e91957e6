"""The context of one answer: its user, its time and the user's notes; the model cannot set any of it."""

import secrets
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo

from django.conf import settings
from django.utils.module_loading import import_string

from core.isolation.caller import Caller
from intake.language_models import LanguageModel, model_for
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

    `model` is None in recall mode, and if no server lists one.
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
    deps = replace(deps, zone=user.zone, how_to_answer=preferences.how_to_answer)
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
