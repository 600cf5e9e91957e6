"""Organises chats: pins, archives and deletes several at once, and moves them between projects."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db import transaction

from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller
from core.text import Sentence
from core.text import gettext_noop as _
from intake.accounts import activity
from intake.chats import changes, deleting
from intake.models import Activity, Conversation

# The most chats that one request changes.
MOST_AT_ONCE = 100


def arrange(
    *,
    caller: Caller,
    conversation_ids: Collection[UUID],
    is_pinned: bool | None = None,
    is_archived: bool | None = None,
    now: datetime,
) -> None:
    """Pin, archive, or undo that; None changes nothing. Archiving unpins.

    Raises `NotFound`, and changes nothing, if one of them is not the caller's.
    """
    _check_number(conversation_ids)
    changed: dict[str, datetime | None] = {}
    if is_pinned is not None:
        changed["pinned_at"] = now if is_pinned else None
    if is_archived is not None:
        changed["archived_at"] = now if is_archived else None
        if is_archived:
            changed["pinned_at"] = None
    with transaction.atomic():
        mine = Conversation.objects.for_caller(caller).filter(pk__in=conversation_ids)
        # Even without a change, this checks their owner.
        count = mine.update(**changed) if changed else mine.count()
        if count != len(set(conversation_ids)):
            raise NotFound
        if changed:
            changes.tell(caller, *conversation_ids)


def delete_all(*, caller: Caller, conversation_ids: Collection[UUID]) -> None:
    """Delete all of them or, if one is not the caller's (`NotFound`), none."""
    _check_number(conversation_ids)
    with transaction.atomic():
        if deleting.delete_conversations(caller=caller, conversation_ids=conversation_ids) != len(
            set(conversation_ids)
        ):
            raise NotFound
        activity.note_for_caller(caller, Activity.CHAT_DELETED, count=len(set(conversation_ids)))


def _check_number(conversation_ids: Collection[UUID]) -> None:
    if not 1 <= len(conversation_ids) <= MOST_AT_ONCE:
        most = Sentence(_("1 to %(most)s at once."), most=MOST_AT_ONCE)
        raise InvalidInput(_("Choose some chats."), errors={"id": [most]})
