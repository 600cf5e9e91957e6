"""Undoes an import: removes its data, and nothing that was written here or came from another import."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from uuid import UUID

from django.db import connection
from django.db.models import F, Max, Q
from django.utils import timezone

from core.isolation.acting import Caller
from core.text import Sentence
from core.text import gettext_noop as _
from imports.models import Import, ImportedItem, ImportEntry, ImportJob, ItemKind
from imports.storing import queue
from imports.storing.contents import notice_of
from imports.storing.documents import is_changed_here, undo_document
from imports.storing.job import finish
from intake.chats import deleting, history
from intake.models import Conversation, Turn, User

# 1. What this import brought and a later one made longer belongs to the later one. What another one brought and this
#    one made longer stays, and belongs to that one. The report counts both.
# 2. A conversation without other turns is deleted. Otherwise only the imported turns are deleted, and the turns after
#    them follow their parents. Documents, records and projects follow, unless they were changed here.

UNDOING_STATES = (Import.State.UNDOING,)
# Conversations, or documents, of one transaction.
BATCH = 50
STAYS = _("Messages and notes that another import brought too, or made longer, stay with that import: %(count)s.")

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
    documents = ImportedItem.objects.for_user(user).filter(batch=batch, kind=ItemKind.DOCUMENT, lines="")
    return int(conversations) + sum(is_changed_here(item, user) for item in documents.iterator(chunk_size=100))


def undo(job: ImportJob, user: User) -> Iterator[None]:
    """Yields after each batch. Raises `LeaseLost`."""
    mine = ImportedItem.objects.for_user(user)
    with queue.step_of(job, user, UNDOING_STATES) as batch:
        lengthened = mine.filter(lengthened_by=batch.pk).update(lengthened_by=None)
        later = mine.filter(batch=batch, lengthened_by__isnull=False)
        lengthened += later.update(batch=F("lengthened_by"), lengthened_by=None)
        if lengthened:
            batch.notices = [*batch.notices, notice_of(Sentence(STAYS, count=lengthened))]
            batch.save(update_fields=["notices"])
        brought = mine.filter(batch=batch)
        total = max(1, brought.count())
    while True:
        with queue.step_of(job, user, UNDOING_STATES) as batch:
            found = brought.filter(kind__in=(ItemKind.CONVERSATION, ItemKind.TURN)).order_by("conversation_id")
            ids = [pk for pk in found.values_list("conversation_id", flat=True).distinct()[:BATCH] if pk]
            documents = [] if ids else list(brought.order_by("pk")[:BATCH])
            if not ids and not documents:
                ImportEntry.objects.for_user(user).filter(batch=batch).update(stored=0, conversation_id=None)
                finish(batch, Import.State.UNDONE)
                return
            _remove_turns(ids, batch, user)
            for item in documents:
                undo_document(item, user)
            brought.filter(pk__in=[item.pk for item in documents]).delete()
            now = timezone.now()
            # How often the progress is counted anew: after each small batch it would cost more than the undoing.
            if now - batch.updated_at >= timedelta(seconds=2):
                batch.progress = min(0.999, 1 - brought.count() / total)
                batch.updated_at = now
                batch.save(update_fields=["progress", "updated_at"])
            queue.held(job).update(attempts=0)
        yield


def _remove_turns(ids: Sequence[UUID], batch: Import, user: User) -> None:
    conversations = history.lock(user=user, ids=ids)
    items = ImportedItem.objects.for_user(user).filter(batch=batch, conversation_id__in=ids)
    brought = {pk for pk in items.filter(kind=ItemKind.TURN).values_list("turn_id", flat=True) if pk is not None}
    turns = Turn.objects.for_user(user).filter(conversation__in=ids)
    here = list(turns.filter(pk__in=brought).values_list("pk", flat=True))
    mixed = set(turns.exclude(pk__in=brought).values_list("conversation_id", flat=True).distinct())
    # Items that the user deleted here stay known, and are not imported again.
    gone = Q(kind=ItemKind.TURN) & ~Q(turn_id__in=here) | Q(kind=ItemKind.CONVERSATION) & ~Q(
        conversation_id__in=conversations
    )
    items.filter(gone).update(batch=None)
    items.delete()
    caller = Caller(user_id=user.pk)
    deleting.delete_conversations(caller=caller, conversation_ids=conversations.keys() - mixed)
    for pk in mixed:
        left = turns.filter(conversation=pk)
        numbers = left.filter(pk__in=brought).order_by("-turn_number").values_list("turn_number", flat=True)
        for number in numbers:
            deleting.delete_turn(caller=caller, conversation_id=pk, turn_number=number, is_noted=False)
        latest = left.aggregate(latest=Max("said_at"))["latest"]
        Conversation.objects.for_user(user).filter(pk=pk).update(last_active_at=latest)
