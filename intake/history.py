"""Saves imported history: many turns of many conversations in one transaction, numbered like those of the chat.

1. `lock` locks the existing conversations in a fixed order, as every writer locks its own before it numbers turns.
2. `next_turn` makes a turn with the next number of its conversation.
3. `save` writes all of them and sends `turns_saved`, because rows that are written in bulk send no `post_save`.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.dispatch import Signal

from core.bulk import insert_many
from core.isolation.caller import Caller
from intake import changes
from intake.models import Conversation, Turn, User

# Sent with `turns`, all of one user and all ended, in the transaction that saves them.
turns_saved = Signal()


def lock(*, user: User, ids: Collection[UUID]) -> dict[UUID, Conversation]:
    """The existing ones, each locked until the transaction ends."""
    if not ids:
        return {}
    wanted = Conversation.objects.for_user(user).filter(pk__in=ids).order_by("pk")
    return {conversation.pk: conversation for conversation in wanted.select_for_update()}


def next_turn(
    conversation: Conversation, *, follows: int | None, said_at: datetime, number: int | None = None, **fields: Any
) -> Turn:
    """An unsaved turn of a conversation that is locked or new.

    `follows`: the number of its parent. `number` may leave a gap.
    """
    conversation.has_versions = conversation.has_versions or (follows or 0) != conversation.turn_count
    conversation.turn_count = number or conversation.turn_count + 1
    conversation.last_active_at = max(conversation.last_active_at, said_at)
    return Turn(
        conversation=conversation,
        user_id=conversation.user_id,
        turn_number=conversation.turn_count,
        parent_number=follows,
        said_at=said_at,
        **{"status": Turn.Status.COMPLETE, **fields},
    )


def save(*, made: Sequence[Conversation], changed: Sequence[Conversation], turns: Sequence[Turn]) -> None:
    """Write new conversations, the changes of locked ones, and their turns."""
    insert_many(made)
    if changed:
        Conversation.objects.bulk_update(changed, ["turn_count", "current_number", "has_versions", "last_active_at"])
    insert_many(turns)
    if turns:
        turns_saved.send(sender=Turn, turns=turns)
    by_user: dict[int | None, list[UUID]] = {}
    for conversation in (*made, *changed):
        by_user.setdefault(conversation.user_id, []).append(conversation.pk)
    for user_id, ids in by_user.items():
        # Open pages show the chats without being loaded again.
        changes.tell(Caller(user_id=user_id), *ids)
