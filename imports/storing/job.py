"""Stores the selected items of an export, one transaction per batch, so that a killed worker loses one at most; and
undoes an import.

1. The export is read from its beginning, also by a worker that continues after another was killed: a stored item is
   recognised by its key, which costs one look-up.
2. Each batch is stored, counted and searchable as a whole, or not at all.
3. A cancellation takes the worker's lease away, so the present batch is rolled back.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Max, Q, Sum
from django.utils import timezone

from core.isolation.acting import Caller, acting_as
from core.text import kept, pg_text, pg_value
from imports.models import Import, ImportedChange, ImportedItem, ImportEntry, ImportJob, ItemKind
from imports.reading.files import Files
from imports.reading.items import ImportedConversation
from imports.storing import contents, queue
from imports.storing import conversations as writing
from imports.storing.contents import (
    MAX_LISTED,
    PLACES,
    SkippedCounts,
    TurnAccount,
    TurnPlace,
    id_of,
    kind_of,
    planned_turns,
    read,
)
from imports.storing.conversations import BATCH_BYTES, BATCH_TURNS, BatchOutcome, TurnStretch, stretches, write
from imports.storing.documents import KeptItem, is_changed_here, keep_all, restore, undo_document
from intake.chats import changes as history
from intake.chats import deleting
from intake.models import Conversation, Turn, User
from intake.models.conversations import OwnedQuerySet

STORING_STATES = (Import.State.WAITING, Import.State.RUNNING)
EXPIRED = "This import was not continued within a day, so its file was deleted. Upload the file again."
# Why a conversation was not selected at first.
_PASSED_OVER: Mapping[str, TurnPlace] = {ImportEntry.Status.HERE: "here", ImportEntry.Status.DELETED: "deleted"}
# Documents, records and projects of one transaction.
MOST_KEPT = 50

_NOTE_STORED = """
UPDATE import_entries AS entry
   SET stored = entry.stored + given.stored, conversation_id = coalesce(given.conversation_id, entry.conversation_id)
  FROM unnest(%(kinds)s::text[], %(ids)s::text[], %(conversations)s::uuid[], %(stored)s::int[])
       AS given(kind, external_id, conversation_id, stored)
 WHERE entry.user_id = %(user_id)s AND import_id = %(import_id)s
   AND entry.kind = given.kind AND entry.external_id = given.external_id
"""


def store(job: ImportJob, user: User) -> Iterator[None]:
    """Yields after each batch. Raises `UnreadableExport` and `LeaseLost`."""
    with acting_as(user):
        batch = queue.keep(job, user=user, states=STORING_STATES)
        batch.state = Import.State.RUNNING
        batch.started_at = batch.started_at or timezone.now()
        batch.stored = batch.stored or {"conversations": 0, "turns": 0, "versions": 0, "documents": 0, "records": 0}
        batch.updated_at = timezone.now()
        batch.save()
        chosen = ImportEntry.objects.for_user(user).filter(batch=batch, is_selected=True)
        requested = {(kind, external_id) for kind, external_id in chosen.values_list("kind", "external_id").iterator()}
        others = ImportEntry.objects.for_user(user).filter(batch=batch, kind=ItemKind.CONVERSATION, is_selected=False)
        passed_over = {
            name: _PASSED_OVER.get(status, "not_chosen") for name, status in others.values_list("external_id", "status")
        }
        turns = chosen.aggregate(turns=Sum("turns"))["turns"] or 0
    # A conversation counts as much as a turn: reading it takes time too.
    # Two, because the reading thread counts too.
    account, not_stored = TurnAccount(), TurnAccount()
    opened = ExitStack()
    export = opened.enter_context(contents.open_export(batch))
    writer = _Store(job, user, total=turns + len(requested), account=account, export=export)
    # A thread reads the next batch while the database stores the last, with the files that it names.
    batches = _batches(_work_of(export, batch, requested, passed_over, not_stored))
    beside = ThreadPoolExecutor(1, thread_name_prefix="reading")
    try:
        upcoming = beside.submit(next, batches, None)
        while together := upcoming.result():
            upcoming = beside.submit(next, batches, None)
            writer.store(together)
            yield
    finally:
        # After the batch that may be being read.
        beside.submit(opened.close)
        beside.shutdown(wait=False)
    with acting_as(user):
        batch = queue.keep(job, user=user, states=STORING_STATES)
        account += not_stored
        batch.account = {"read": (batch.account or {}).get("read"), **account.as_data(*PLACES)}
        batch.save(update_fields=["account"])
        finish(batch, Import.State.DONE)


def expire(job: ImportJob, user: User) -> Iterator[None]:
    """Delete an upload that the user did not continue, in one step. Raises `LeaseLost`."""
    with acting_as(user):
        batch = queue.keep(job, user=user, states=(Import.State.UPLOADING, Import.State.READY))
        finish(batch, Import.State.CANCELLED, error=EXPIRED)
    yield


def finish(batch: Import, state: Import.State, *, error: str = "") -> None:
    """End the import and delete its upload, in a transaction that acts as the user."""
    now = timezone.now()
    batch.state, batch.error, batch.finished_at, batch.updated_at = state, pg_text(error), now, now
    if values := kept(error):
        batch.notices = [*batch.notices, pg_value({"error": error, **values})]
    batch.progress = 1.0 if state == Import.State.DONE else batch.progress
    batch.save(update_fields=["state", "error", "notices", "finished_at", "updated_at", "progress"])
    queue.end(batch)
    transaction.on_commit(partial(queue.delete, batch), robust=True)


def _work_of(
    export: Files,
    batch: Import,
    requested: set[tuple[str, str]],
    passed_over: Mapping[str, TurnPlace],
    account: TurnAccount,
) -> Iterator[TurnStretch | KeptItem]:
    """The selected conversations in stretches, and the other selected items; other conversations are counted."""
    for item in read(export, batch, SkippedCounts()):
        if (kind_of(item), id_of(item)) not in requested:
            if isinstance(item, ImportedConversation):
                for turn in planned_turns(item, otherwise=batch.created_at):
                    account.add(passed_over.get(id_of(item), "not_chosen"), turn)
            continue
        if isinstance(item, ImportedConversation):
            yield from stretches(item, otherwise=batch.created_at)
        else:
            yield item


@dataclass
class _Together:
    """The items of one transaction."""

    stretches: list[TurnStretch] = field(default_factory=list)
    others: list[KeptItem] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        turns = sum(len(stretch.turns) for stretch in self.stretches)
        size = sum(stretch.size for stretch in self.stretches)
        return len(self.others) >= MOST_KEPT or turns >= BATCH_TURNS or size >= BATCH_BYTES


def _batches(work: Iterator[TurnStretch | KeptItem]) -> Iterator[_Together]:
    together = _Together()
    for each in work:
        if isinstance(each, TurnStretch):
            together.stretches.append(each)
        else:
            together.others.append(each)
        if together.is_full:
            yield together
            together = _Together()
    if together.stretches or together.others:
        yield together


class _Store:
    """Stores batches and counts the stored items."""

    def __init__(self, job: ImportJob, user: User, *, total: int, account: TurnAccount, export: Files) -> None:
        self._export = export
        self._account = account
        self._job = job
        self._user = user
        self._total = max(1, total)
        self._passed = 0

    def store(self, together: _Together) -> None:
        with acting_as(self._user):
            batch = queue.keep(self._job, user=self._user, states=STORING_STATES)
            done = write(together.stretches, user=self._user, brought_by=batch, export=self._export)
            kept, refused = keep_all(together.others, user=self._user, brought_by=batch)
            noted: list[tuple[str, str, Any, int]] = [
                (ItemKind.CONVERSATION, name, pk, turns) for name, (pk, turns) in done.by_conversation.items()
            ]
            noted += [(kind_of(item), id_of(item), None, 1) for item in kept]
            _note_stored(batch, noted)
            if done.turns or kept:
                queue.count_anew(self._job)
            self._passed += sum(len(stretch.turns) for stretch in together.stretches)
            self._passed += len({id(stretch.conversation) for stretch in together.stretches}) + len(together.others)
            _note_refused(batch, [*((where, why, where) for where, why in refused.items()), *done.refused])
            self._count(batch, done, kept)
        self._account += done.account

    def _count(self, batch: Import, done: BatchOutcome, kept: list[KeptItem]) -> None:
        kinds = [kind_of(item) for item in kept]
        new = {
            "conversations": done.conversations,
            "turns": done.turns,
            "versions": done.versions,
            "documents": kinds.count(ItemKind.DOCUMENT),
            "records": kinds.count(ItemKind.RECORD),
            **({"projects": number} if (number := kinds.count(ItemKind.PROJECT)) else {}),
        }
        stored: dict[str, int] = batch.stored
        batch.stored = {**stored, **{name: stored.get(name, 0) + number for name, number in new.items()}}
        batch.progress = min(0.999, self._passed / self._total)
        batch.updated_at = timezone.now()
        batch.save(update_fields=["stored", "progress", "skipped", "found", "updated_at"])


def _note_refused(batch: Import, refused: Sequence[tuple[str, str, str]]) -> None:
    """Counts as skipped, and is reported once: a document without room in the one that it belongs to, a lost branch, a
    file beyond a quota. Each with its place, the reason and the external id of what it belongs to.
    """
    known = {each["where"] for each in batch.skipped}
    new = [
        {"where": pg_text(where), "reason": why, "external_id": pg_text(external_id), **kept(why)}
        for where, why, external_id in refused
        if where not in known
    ]
    batch.skipped = [*batch.skipped, *new][:MAX_LISTED]
    batch.found = {**(batch.found or {}), "skipped": (batch.found or {}).get("skipped", 0) + len(new)}


def _note_stored(batch: Import, noted: list[tuple[str, str, Any, int]]) -> None:
    if not noted:
        return
    kinds, ids, conversations, stored = (list(column) for column in zip(*noted, strict=True))
    with connection.cursor() as cursor:
        cursor.execute(
            _NOTE_STORED,
            {
                "user_id": batch.user_id,
                "import_id": batch.pk,
                "kinds": [str(kind) for kind in kinds],
                "ids": ids,
                "conversations": conversations,
                "stored": stored,
            },
        )


# --- Undoes an import: removes exactly its data, and nothing that was written here or came from another import ---
# 1. A turn or note that this import made longer gets its earlier text.
# 2. A turn or note that this import created, and that a later import made longer, then belongs to the later one.
# 3. A conversation without other turns is deleted. Otherwise only the imported turns are deleted, and the turns after
#    them follow their parents. Documents, records and projects follow.

UNDOING_STATES = (Import.State.UNDOING,)
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
    documents = ImportedItem.objects.for_user(user).filter(batch=batch, kind=ItemKind.DOCUMENT, lines="")
    return int(conversations) + sum(is_changed_here(item, user) for item in documents.iterator(chunk_size=100))


def undo(job: ImportJob, user: User) -> Iterator[None]:
    """Yields after each batch. Raises `LeaseLost`."""
    with acting_as(user):
        batch = queue.keep(job, user=user, states=UNDOING_STATES)
        total = max(1, _brought(batch, user).count())
    while _undo_changes(job, user) or _hand_over(job, user):
        yield
    while _undo_conversations(job, user, total) or _undo_documents(job, user, total):
        yield
    with acting_as(user):
        batch = queue.keep(job, user=user, states=UNDOING_STATES)
        ImportEntry.objects.for_user(user).filter(batch=batch).update(stored=0, conversation_id=None)
        finish(batch, Import.State.UNDONE)


def _undo_changes(job: ImportJob, user: User) -> bool:
    """Undo the next few changes, the latest first; returns whether there were any."""
    with acting_as(user):
        batch = queue.keep(job, user=user, states=UNDOING_STATES)
        found = ImportedChange.objects.for_user(user).filter(batch=batch).order_by("-pk")[:BATCH]
        waiting = list(found.select_related("item"))
        # In the order of every writer, before their turns.
        history.lock(user=user, ids={each.item.conversation_id for each in waiting if each.item.conversation_id})
        for change in waiting:
            if contents.taken_back(change):
                (writing.restore if change.item.kind == ItemKind.TURN else restore)(change.item, change, user)
        queue.count_anew(job)
    return bool(waiting)


def _hand_over(job: ImportJob, user: User) -> bool:
    with acting_as(user):
        batch = queue.keep(job, user=user, states=UNDOING_STATES)
        return contents.reassign(batch, user, at_most=BATCH)


def _brought(batch: Import, user: User) -> OwnedQuerySet[ImportedItem]:
    return ImportedItem.objects.for_user(user).filter(batch=batch)


def _undo_conversations(job: ImportJob, user: User, total: int) -> bool:
    """The next few; returns whether there were any."""
    with acting_as(user):
        batch = queue.keep(job, user=user, states=UNDOING_STATES)
        waiting = _brought(batch, user).filter(kind__in=(ItemKind.CONVERSATION, ItemKind.TURN))
        found = waiting.order_by("conversation_id").values_list("conversation_id", flat=True).distinct()[:BATCH]
        ids = [pk for pk in found if pk is not None]
        _remove_turns(ids, batch, user)
        _note_progress(batch, user, total)
        queue.count_anew(job)
    return bool(ids)


def _remove_turns(ids: Sequence[UUID], batch: Import, user: User) -> None:
    conversations = history.lock(user=user, ids=ids)
    items = _brought(batch, user).filter(conversation_id__in=ids)
    brought = {pk for pk in items.filter(kind=ItemKind.TURN).values_list("turn_id", flat=True) if pk is not None}
    turns = Turn.objects.for_user(user).filter(conversation__in=ids)
    here = dict(turns.filter(pk__in=brought).values_list("pk", "turn_number"))
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
        batch = queue.keep(job, user=user, states=UNDOING_STATES)
        waiting = list(
            _brought(batch, user).exclude(kind__in=(ItemKind.CONVERSATION, ItemKind.TURN)).order_by("pk")[:BATCH]
        )
        for item in waiting:
            undo_document(item, user)
        _brought(batch, user).filter(pk__in=[item.pk for item in waiting]).delete()
        _note_progress(batch, user, total)
        queue.count_anew(job)
    return bool(waiting)


def _note_progress(batch: Import, user: User, total: int) -> None:
    """Counts what is left every few seconds only: after each small batch it would cost more than the undoing."""
    now = timezone.now()
    if now - batch.updated_at < COUNTED_EVERY:
        return
    batch.progress = min(0.999, 1 - _brought(batch, user).count() / total)
    batch.updated_at = now
    batch.save(update_fields=["progress", "updated_at"])
