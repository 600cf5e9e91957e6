"""Stores the selected items of an export, one transaction per batch, so that a killed worker loses one at most.

1. The export is read from its beginning, also by a worker that continues after another was killed: a stored item is
   recognised by its key, which costs one look-up.
2. Each batch is stored, counted and searchable as a whole, or not at all.
3. A cancellation takes the worker's lease away, so the present batch is rolled back.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import get_args
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Sum
from django.utils import timezone

from core.text import kept, pg_text, pg_value
from imports.models import Import, ImportEntry, ImportJob, ItemKind
from imports.reading.files import Files
from imports.reading.items import ImportedConversation
from imports.storing import queue, uploads
from imports.storing.contents import MAX_LISTED, SkippedCounts, id_of, kind_of, open_export, read
from imports.storing.conversations import BATCH_BYTES, BATCH_TURNS, Batch, BatchOutcome, TurnStretch, stretches
from imports.storing.documents import KeptItem, keep_all
from imports.storing.turns import TurnPlace
from intake.models import User

STORING_STATES = (Import.State.WAITING, Import.State.RUNNING)
EXPIRED = "This import was not continued within a day, so its file was deleted. Upload the file again."
# Why a conversation was not selected at first.
_PASSED_OVER: Mapping[str, TurnPlace] = {ImportEntry.Status.HERE: "here", ImportEntry.Status.DELETED: "deleted"}

_NOTE_STORED = """
UPDATE import_entries AS entry
   SET stored = entry.stored + given.stored, conversation_id = coalesce(given.conversation_id, entry.conversation_id)
  FROM unnest(%s::text[], %s::text[], %s::uuid[], %s::int[]) AS given(kind, external_id, conversation_id, stored)
 WHERE entry.user_id = %s AND import_id = %s AND entry.kind = given.kind AND entry.external_id = given.external_id
"""


def store(job: ImportJob, user: User) -> Iterator[None]:
    """Yields after each batch. Raises `UnreadableExport` and `LeaseLost`."""
    with queue.step_of(job, user, STORING_STATES) as batch:
        batch.state = Import.State.RUNNING
        batch.started_at = batch.started_at or timezone.now()
        batch.stored = batch.stored or {"conversations": 0, "turns": 0, "versions": 0, "documents": 0, "records": 0}
        batch.updated_at = timezone.now()
        batch.save()
        entries = ImportEntry.objects.for_user(user).filter(batch=batch)
        chosen = entries.filter(is_selected=True)
        requested = set(chosen.values_list("kind", "external_id").iterator())
        others = entries.filter(kind=ItemKind.CONVERSATION, is_selected=False).values_list("external_id", "status")
        passed_over = {name: _PASSED_OVER.get(status, "not_chosen") for name, status in others}
        # A conversation counts as much as a turn: reading it takes time too.
        total = max(1, (entries.aggregate(turns=Sum("turns"))["turns"] or 0) + entries.count())
    account = {place: Counter(turns=0, characters=0) for place in get_args(TurnPlace)}
    passed = 0
    # A thread reads the next batch while the database stores the last, with the files that it names.
    with open_export(batch) as export, ThreadPoolExecutor(1, thread_name_prefix="reading") as beside:
        batches = _batches(_work_of(export, batch, requested, passed_over))
        upcoming = beside.submit(next, batches, None)
        while together := upcoming.result():
            upcoming = beside.submit(next, batches, None)
            passed += len(together)
            for stretch in (each for each in together if isinstance(each, TurnStretch)):
                passed += len(stretch.turns)
            _store(job, user, together, export=export, progress=min(0.999, passed / total))
            for stretch in (each for each in together if isinstance(each, TurnStretch)):
                for turn in stretch.turns:
                    account[stretch.passed_over or turn.place].update(turns=1, characters=len(turn.user_message))
            yield
    with queue.step_of(job, user, STORING_STATES) as batch:
        batch.account = {"read": (batch.account or {}).get("read"), **account}
        batch.save(update_fields=["account"])
        finish(batch, Import.State.DONE)


def expire(job: ImportJob, user: User) -> Iterator[None]:
    """Delete an upload that the user did not continue, in one step. Raises `LeaseLost`."""
    with queue.step_of(job, user, (Import.State.UPLOADING, Import.State.READY)) as batch:
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
    transaction.on_commit(partial(uploads.delete, batch), robust=True)


def _work_of(
    export: Files, batch: Import, requested: set[tuple[str, str]], passed_over: Mapping[str, TurnPlace]
) -> Iterator[TurnStretch | KeptItem]:
    """The conversations in stretches, also those that are only counted, and the other selected items."""
    for item in read(export, batch, SkippedCounts()):
        is_requested = (kind_of(item), id_of(item)) in requested
        if isinstance(item, ImportedConversation):
            for stretch in stretches(item, otherwise=batch.created_at):
                stretch.passed_over = None if is_requested else passed_over.get(id_of(item), "not_chosen")
                yield stretch
        elif is_requested:
            yield item


def _batches(work: Iterator[TurnStretch | KeptItem]) -> Iterator[list[TurnStretch | KeptItem]]:
    """The items of one transaction each: a document takes as long as eight turns."""
    together: list[TurnStretch | KeptItem] = []
    turns = size = 0
    for each in work:
        together.append(each)
        turns += len(each.turns) if isinstance(each, TurnStretch) else 8
        size += each.size if isinstance(each, TurnStretch) else 0
        if turns >= BATCH_TURNS or size >= BATCH_BYTES:
            yield together
            together, turns, size = [], 0, 0
    if together:
        yield together


def _store(
    job: ImportJob, user: User, together: Sequence[TurnStretch | KeptItem], *, export: Files, progress: float
) -> None:
    chosen = [each for each in together if isinstance(each, TurnStretch) and each.passed_over is None]
    others = [each for each in together if not isinstance(each, TurnStretch)]
    with queue.step_of(job, user, STORING_STATES) as batch:
        done = Batch(chosen, user=user, brought_by=batch, export=export).write()
        kept_items, refused = keep_all(others, user=user, brought_by=batch)
        if done.turns or kept_items:
            # What fails next fails for the first time.
            queue.held(job).update(attempts=0)
        _note_stored(batch, done, kept_items)
        _note_refused(batch, [*((where, why, where) for where, why in refused.items()), *done.refused])
        kinds = Counter(f"{kind_of(item)}s" for item in kept_items)
        batch.count("stored", conversations=done.conversations, turns=done.turns, versions=done.versions, **kinds)
        batch.progress = progress
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
    batch.count("found", skipped=len(new))


def _note_stored(batch: Import, done: BatchOutcome, kept_items: Sequence[KeptItem]) -> None:
    """In the lines of the preview, which are the report afterwards."""
    noted: list[tuple[str, str, UUID | None, int]] = [
        (ItemKind.CONVERSATION.value, name, pk, turns) for name, (pk, turns) in done.by_conversation.items()
    ]
    noted += [(kind_of(item).value, id_of(item), None, 1) for item in kept_items]
    if noted:
        with connection.cursor() as cursor:
            cursor.execute(_NOTE_STORED, [*map(list, zip(*noted, strict=True)), batch.user_id, batch.pk])
