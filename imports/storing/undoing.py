"""Undoes an import: removes exactly its data, and nothing that was written here or came from another import.

1. A turn or note that this import made longer gets its earlier text.
2. A turn or note that this import created, and that a later import made longer, then belongs to the later one.
3. A conversation without other turns is deleted. Otherwise only the imported turns are deleted, and the turns after
   them follow their parents. Documents and records follow.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from uuid import UUID

from django.db import connection
from django.db.models import Max, Q
from django.utils import timezone

from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from imports.models import Import, ImportedChange, ImportedItem, ImportedItemQuerySet, ImportEntry, ImportJob
from imports.storing import changes, jobs, writing
from imports.storing.keeping import is_changed_here, restore, take_out
from imports.storing.store import finish
from intake import deleting, history
from intake.models import Conversation, Turn, User

STATES = (Import.State.UNDOING,)
# Conversations, or documents, of one transaction.
BATCH = 50
# How often the progress is counted anew.
COUNTED_EVERY = timedelta(seconds=2)

# Conversations with turns of this import, and with others that no import brought.
_CONTINUED = """
SELECT count(DISTINCT turn.conversation_id)
  FROM intake_conversation_turns AS turn
 WHERE turn.user_id = %(user_id)s
   AND turn.conversation_id IN (
        SELECT conversation_id FROM imported_items
         WHERE user_id = %(user_id)s AND import_id = %(import_id)s AND conversation_id IS NOT NULL)
   AND NOT EXISTS (
        SELECT FROM imported_items AS item
         WHERE item.user_id = %(user_id)s AND item.conversation_id = turn.conversation_id AND item.turn_id = turn.id)
"""


def continued_since(batch: Import, user: User) -> int:
    """The number of its conversations and notes that were continued or changed here."""
    with connection.cursor() as cursor:
        cursor.execute(_CONTINUED, {"user_id": batch.user_id, "import_id": batch.pk})
        (conversations,) = cursor.fetchone()
    documents = ImportedItem.objects.for_user(user).filter(batch=batch, kind=ImportedItem.Kind.DOCUMENT, lines="")
    return int(conversations) + sum(is_changed_here(item, user) for item in documents.iterator(chunk_size=100))


def undo(job: ImportJob, user: User) -> Iterator[None]:
    """Yields after each batch. Raises `LeaseLost`."""
    with acting_as(user):
        batch = jobs.keep(job, user=user, states=STATES)
        total = max(1, _brought(batch, user).count())
    while _undo_changes(job, user) or _hand_over(job, user):
        yield
    while _undo_conversations(job, user, total) or _undo_documents(job, user, total):
        yield
    with acting_as(user):
        batch = jobs.keep(job, user=user, states=STATES)
        ImportEntry.objects.for_user(user).filter(batch=batch).update(stored=0, conversation_id=None)
        finish(batch, Import.State.UNDONE)


def _undo_changes(job: ImportJob, user: User) -> bool:
    """Undo the next few changes, the latest first; returns whether there were any."""
    with acting_as(user):
        batch = jobs.keep(job, user=user, states=STATES)
        found = ImportedChange.objects.for_user(user).filter(batch=batch).order_by("-pk")[:BATCH]
        waiting = list(found.select_related("item"))
        # In the order of every writer, before their turns.
        history.lock(user=user, ids={each.item.conversation_id for each in waiting if each.item.conversation_id})
        for change in waiting:
            if changes.taken_back(change):
                (writing.restore if change.item.kind == ImportedItem.Kind.TURN else restore)(change.item, change, user)
        jobs.count_anew(job)
    return bool(waiting)


def _hand_over(job: ImportJob, user: User) -> bool:
    with acting_as(user):
        batch = jobs.keep(job, user=user, states=STATES)
        return changes.hand_over(batch, user, at_most=BATCH)


def _brought(batch: Import, user: User) -> ImportedItemQuerySet:
    return ImportedItem.objects.for_user(user).filter(batch=batch)


def _undo_conversations(job: ImportJob, user: User, total: int) -> bool:
    """The next few; returns whether there were any."""
    with acting_as(user):
        batch = jobs.keep(job, user=user, states=STATES)
        waiting = _brought(batch, user).filter(kind__in=(ImportedItem.Kind.CONVERSATION, ImportedItem.Kind.TURN))
        found = waiting.order_by("conversation_id").values_list("conversation_id", flat=True).distinct()[:BATCH]
        ids = [pk for pk in found if pk is not None]
        _remove_turns(ids, batch, user)
        _note_progress(batch, user, total)
        jobs.count_anew(job)
    return bool(ids)


def _remove_turns(ids: Sequence[UUID], batch: Import, user: User) -> None:
    conversations = history.lock(user=user, ids=ids)
    items = _brought(batch, user).filter(conversation_id__in=ids)
    brought = {
        pk for pk in items.filter(kind=ImportedItem.Kind.TURN).values_list("turn_id", flat=True) if pk is not None
    }
    turns = Turn.objects.for_user(user).filter(conversation__in=ids)
    here = dict(turns.filter(pk__in=brought).values_list("pk", "turn_number"))
    mixed = set(turns.exclude(pk__in=brought).values_list("conversation_id", flat=True).distinct())
    # Items that the user deleted here stay known, and are not imported again.
    gone = Q(kind=ImportedItem.Kind.TURN) & ~Q(turn_id__in=here) | Q(kind=ImportedItem.Kind.CONVERSATION) & ~Q(
        conversation_id__in=conversations
    )
    items.filter(gone).update(batch=None)
    items.delete()
    caller = Caller(user_id=user.pk)
    deleting.delete_conversations(caller=caller, conversation_ids=conversations.keys() - mixed)
    for pk in mixed:
        _remove_some_turns(conversations[pk], brought, user)


def _remove_some_turns(conversation: Conversation, brought: Collection[int], user: User) -> None:
    turns = Turn.objects.for_user(user).filter(conversation=conversation)
    for number in turns.filter(pk__in=brought).order_by("-turn_number").values_list("turn_number", flat=True):
        deleting.delete_turn(
            caller=Caller(user_id=user.pk), conversation_id=conversation.pk, turn_number=number, is_noted=False
        )
    latest = turns.aggregate(latest=Max("said_at"))["latest"]
    Conversation.objects.for_user(user).filter(pk=conversation.pk).update(last_active_at=latest)


def _undo_documents(job: ImportJob, user: User, total: int) -> bool:
    with acting_as(user):
        batch = jobs.keep(job, user=user, states=STATES)
        waiting = list(
            _brought(batch, user)
            .filter(kind__in=(ImportedItem.Kind.DOCUMENT, ImportedItem.Kind.RECORD))
            .order_by("pk")[:BATCH]
        )
        for item in waiting:
            take_out(item, user)
        _brought(batch, user).filter(pk__in=[item.pk for item in waiting]).delete()
        _note_progress(batch, user, total)
        jobs.count_anew(job)
    return bool(waiting)


def _note_progress(batch: Import, user: User, total: int) -> None:
    """Counts what is left every few seconds only: after each small batch it would cost more than the undoing."""
    now = timezone.now()
    if now - batch.updated_at < COUNTED_EVERY:
        return
    batch.progress = min(0.999, 1 - _brought(batch, user).count() / total)
    batch.updated_at = now
    batch.save(update_fields=["progress", "updated_at"])
