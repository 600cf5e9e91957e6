"""Saves imported history: many turns of many conversations in one transaction, numbered like those of the chat."""

from collections.abc import Collection, Sequence
from uuid import UUID

from django.dispatch import Signal

from core.isolation.acting import Caller
from core.isolation.inserting import insert_many
from intake.chats.changes import tell
from intake.models import Conversation, Turn, User

# 1. `lock` locks the existing conversations in a fixed order, as every writer locks its own before it numbers turns.
# 2. `Conversation.next_turn` makes a turn with the next number.
# 3. `save` writes all of them and sends `turns_saved`, because rows that are written in bulk send no `post_save`.

# Sent with `turns`, all of one user and all ended, in the transaction that saves them.
turns_saved = Signal()


_CHANGING = ["turn_count", "current_number", "has_versions", "last_active_at", "project"]


def lock(*, user: User, ids: Collection[UUID]) -> dict[UUID, Conversation]:
    """The existing ones, each locked until the transaction ends."""
    if not ids:
        return {}
    requested = Conversation.objects.for_user(user).filter(pk__in=ids).order_by("pk")
    return {conversation.pk: conversation for conversation in requested.select_for_update()}


def save(*, made: Sequence[Conversation], changed: Sequence[Conversation], turns: Sequence[Turn]) -> None:
    """Write new conversations, the changes of locked ones, and their turns."""
    insert_many(made)
    if changed:
        Conversation.objects.bulk_update(changed, _CHANGING)
    insert_many(turns)
    if turns:
        turns_saved.send(sender=Turn, turns=turns)
    by_user: dict[int | None, list[UUID]] = {}
    for conversation in (*made, *changed):
        by_user.setdefault(conversation.user_id, []).append(conversation.pk)
    for user_id, ids in by_user.items():
        # Open pages show the chats without being loaded again.
        tell(Caller(user_id=user_id), *ids)
