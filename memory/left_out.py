"""The lines and texts that a user has left out of what models get: for good, or of one chat.

Each is kept as a digest of its id, or of its page and its words; none of the words are kept. What is left out for good,
no agent gets as context and no chat in its prompt; what is left out of a chat, that chat does not get.
"""

import hashlib
from collections.abc import Callable, Iterable
from string import hexdigits
from typing import TypeVar
from uuid import UUID

from core.errors import InvalidInput
from core.isolation.acting import Caller, acting_as
from core.text import gettext_noop as _
from intake.chats.services import lock_conversation
from intake.models import ChatPreferences, Conversation, User
from memory.models.documents import Corpus, Hit

MOST_LEFT_OUT, DIGEST_LENGTH = 1_000, 32

Item = TypeVar("Item")


def digest_of(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:DIGEST_LENGTH]


def digests_left_out(user: User) -> set[str]:
    """For good."""
    return set(ChatPreferences.objects.for_user(user).values_list("left_out", flat=True).first() or [])


def leave_out(*, user: User, digest: str, conversation_id: UUID | None = None) -> None:
    """For good, or of one chat. Raises `InvalidInput` for what is no digest, and for too many of them."""
    if not (len(digest) == DIGEST_LENGTH and set(digest) <= set(hexdigits)):
        raise InvalidInput(errors={"line": [_("There is no such line.")]})
    with acting_as(user):
        chat, known = _known(user, conversation_id)
        if len(known) >= MOST_LEFT_OUT:
            raise InvalidInput(errors={"line": [_("So many lines are left out that no more can be.")]})
        _save(user, chat, {*known, digest})


def bring_back(*, user: User, digest: str, conversation_id: UUID | None = None) -> None:
    """All lines, if the digest is empty."""
    with acting_as(user):
        chat, known = _known(user, conversation_id)
        _save(user, chat, known - {digest} if digest else set())


def staying(user: User, items: Iterable[Item], names: Callable[[Item], Iterable[str]]) -> list[Item]:
    """Those that are not left out of the chat for which this user object searches; `names`: the ids of one."""
    return [item for item in items if not user.left_out or user.left_out.isdisjoint(map(digest_of, names(item)))]


def names_of(hit: Hit) -> Iterable[str]:
    """The id of a hit, as tools write it; of a whole chat also that of its first turn, which gave it its title."""
    source, number = hit.key
    if hit.corpus == Corpus.ATTACHMENT:
        return [f"file:{source}:{number}"]
    if hit.corpus != Corpus.CHAT:
        return [str(source)]
    return [f"{source}/{number}"] if number else [str(source), f"{source}/1"]


def _known(user: User, conversation_id: UUID | None) -> tuple[Conversation | None, set[str]]:
    """The chat, if it is about one, and what is left out."""
    if conversation_id is None:
        return None, digests_left_out(user)
    chat = lock_conversation(Caller(user_id=user.pk), conversation_id)
    return chat, set(chat.left_out)


def _save(user: User, chat: Conversation | None, digests: set[str]) -> None:
    if chat is None:
        ChatPreferences.objects.update_or_create(user=user, defaults={"left_out": sorted(digests)})
        return
    chat.left_out = sorted(digests)
    chat.save(update_fields=["left_out"])
