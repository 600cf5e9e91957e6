"""The operations of a user on an import: create, upload, preview, select and start, cancel, undo, remove.

Each acts as the user. Each locks the import's row first, as the worker does for each batch, so that they cannot
conflict.
"""

from collections.abc import Collection
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from django.db import transaction
from django.db.models import F, Q, QuerySet, Sum
from pydantic import Field

from core.errors import (
    ContinuedSince,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    TooManyImports,
    WrongOffset,
    WrongState,
)
from core.ids import parse_id
from core.isolation.acting import acting_as
from core.paging import ListPage, Position, page_of
from core.text import gettext_noop as _
from core.text import pg_text
from core.validation import Input, PlainText, WrittenTime
from imports.models import ENTRY_KINDS, MAX_FILENAME, UNUSED_FOR, Import, ImportedItem, ImportEntry
from imports.reading.files import EMPTY
from imports.reading.products import readers
from imports.storing import queue, uploads
from imports.storing.job import finish
from imports.storing.preview import counted_new
from imports.storing.undoing import continued_since
from intake.accounts import activity
from intake.models import Activity, User
from memory import quotas

_NEWEST_FIRST = (F("last_at").desc(nulls_last=True), "id")
MAX_CHUNK = 2 * 1024 * 1024
# What clients are asked to send: many proxies take no body of more than a million bytes (nginx's default is 1 MiB).
CHUNK = 960 * 1024
# The open uploads of one user.
MOST_OPEN, MOST_BYTES = 3, 10 * 1024**3


def _one_of(*words: str) -> Any:
    """One of these words, or none."""
    return Field(pattern=f"^({'|'.join(words)})?$", json_schema_extra={"enum": [*words]})


class EntryQuestion(Input):
    """The filter of a preview."""

    q: Annotated[PlainText, Field(max_length=200, description="Only titles that contain this.")] = ""
    status: Annotated[PlainText, _one_of(*ImportEntry.Status.values, "stored")] = ""
    kind: Annotated[PlainText, _one_of(*ENTRY_KINDS)] = ""
    since: Annotated[WrittenTime | None, Field(description="Only what did not end before.")] = None
    after: Annotated[int | None, Field(ge=0, le=2**31, description="`more` of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=500)] = 100


def begin(*, user: User, filename: str, size: int, product: str, now: datetime, begun_by: str = "") -> Import:
    """`begun_by` is a digest of the caller's token, if there is one.

    Raises `InvalidInput`, `TooManyImports`, `QuotaExceeded` and `NoRoom`.
    """
    if not size:
        raise InvalidInput(EMPTY, errors={"bytes": [EMPTY]})
    if product and product not in {reader.product for reader in readers()}:
        raise InvalidInput(errors={"product": [_("There is no such product.")]})
    quotas.take(user.pk, turns=1, size=1, fills_queue=True)
    with transaction.atomic():
        # A user's imports are created one after the other, so that two cannot both find room.
        User.objects.select_for_update().get(pk=user.pk)
        held = Import.objects.for_user(user).filter(state__in=Import.State.with_upload())
        if held.count() >= MOST_OPEN:
            raise TooManyImports
        used = held.aggregate(used=Sum("bytes"))["used"] or 0
        if used + size > MOST_BYTES:
            left = max(0, MOST_BYTES - used)
            message = _("There is room for %(count)s more bytes, and this file has %(size)s.")
            raise QuotaExceeded(message, count=left, size=size)
        name = " ".join(pg_text(filename).split())[:MAX_FILENAME] or "export"
        batch = Import.objects.create(
            user=user,
            filename=name,
            bytes=size,
            product=product,
            begun_by=begun_by,
            created_at=now,
            updated_at=now,
        )
        queue.due_at(batch, now + UNUSED_FOR)
        uploads.reserve(batch)
    return batch


def list_imports(*, user: User, after: Position | None, begun_by: str = "") -> ListPage[Import]:
    """The newest first, 30 at a time; those of one token if it is named."""
    found = Import.objects.for_user(user)
    return page_of(found.filter(begun_by=begun_by) if begun_by else found, by="created_at", after=after, size=30)


def sent_since(*, user: User, since: datetime) -> list[dict[str, Any]]:
    """What agents appended while their sessions ran, by product, the last first.

    `newest_id`: the last of a product's imports, by which it is undone.
    """
    with acting_as(user):
        # Only what was appended has no file.
        appended = Import.objects.for_user(user).filter(bytes=0, state=Import.State.DONE, updated_at__gte=since)
        rows = list(appended.order_by("-updated_at"))
    labels = {reader.product: reader.label for reader in readers()}
    by_product: dict[str, list[Import]] = {}
    for row in rows:
        by_product.setdefault(row.product, []).append(row)
    return [
        {
            "label": labels.get(product, product),
            "conversations": sum(row.stored.get("conversations", 0) for row in found),
            "turns": sum(row.stored.get("turns", 0) for row in found),
            "last_at": found[0].updated_at,
            "newest_id": found[0].pk,
        }
        for product, found in by_product.items()
    ]


def get(*, user: User, import_id: str) -> Import:
    """Raises `NotFound`."""
    batch = Import.objects.for_user(user).filter(pk=parse_id(import_id)).first()
    if batch is None:
        raise NotFound
    return batch


def receive(*, user: User, import_id: str, data: bytes, first: int, total: int, now: datetime) -> Import:
    """Store a chunk. Raises `NotFound`, `WrongState`, `WrongOffset`, `InvalidInput` and `NoRoom`."""
    with transaction.atomic():
        batch = _locked(user, import_id, Import.State.UPLOADING)
        if total != batch.bytes or first + len(data) > batch.bytes:
            raise InvalidInput(_("The file was announced with %(count)s bytes."), count=batch.bytes)
        if first != batch.bytes_received:
            raise WrongOffset(batch.bytes_received)
        uploads.write(batch, data, offset=first)
        batch.bytes_received += len(data)
        batch.progress = batch.bytes_received / batch.bytes
        batch.updated_at = now
        if batch.bytes_received == batch.bytes:
            batch.state, batch.progress = Import.State.READING, 0.0
            queue.want_worker(batch, now=now)
        else:
            queue.due_at(batch, now + UNUSED_FOR)
        batch.save(update_fields=["bytes_received", "progress", "updated_at", "state"])
    return batch


def entries_of(batch: Import, asked: EntryQuestion) -> tuple[list[ImportEntry], int | None]:
    """Lines of the preview, the newest first, and where the next page begins, if there is one.

    Raises `WrongState` before there is a preview.
    """
    if batch.state in (Import.State.UPLOADING, Import.State.READING):
        raise WrongState(_("The import is %(state)s: there is no preview yet."), state=batch.state)
    found = _entries_since(batch, asked.since)
    if asked.q:
        found = found.filter(title__icontains=asked.q)
    if asked.kind:
        found = found.filter(kind=asked.kind)
    if asked.status:
        found = found.filter(Q(stored__gt=0) if asked.status == "stored" else Q(status=asked.status))
    start = asked.after or 0
    rows = list(found.order_by(*_NEWEST_FIRST)[start : start + asked.limit + 1])
    return rows[: asked.limit], start + asked.limit if len(rows) > asked.limit else None


def newest_titles(batch: Import, since: datetime | None) -> list[str]:
    return list(_entries_since(batch, since).order_by(*_NEWEST_FIRST).values_list("title", flat=True)[:10])


def comes_in(batch: Import, since: datetime | None) -> dict[str, int]:
    """What a start with the same `since`, and no other selection, would store."""
    return counted_new(_entries_since(batch, since).filter(is_selected=True))


def _entries_since(batch: Import, since: datetime | None) -> QuerySet[ImportEntry]:
    found = ImportEntry.objects.filter(user=batch.user_id, batch=batch)
    return found if since is None else found.exclude(last_at__lt=since)


def start(
    *,
    user: User,
    import_id: str,
    only: Collection[str] | None,
    leave_out: Collection[str],
    since: datetime | None,
    now: datetime,
) -> Import:
    """Save the selection, and let a worker store it. Raises `NotFound` and `WrongState`."""
    with transaction.atomic():
        batch = _locked(user, import_id, Import.State.READY)
        entries = ImportEntry.objects.for_user(user).filter(batch=batch)
        if only is not None:
            entries.update(is_selected=False)
            entries.filter(external_id__in=list(only)).update(is_selected=True)
        entries.filter(external_id__in=list(leave_out)).update(is_selected=False)
        if since is not None:
            entries.filter(last_at__lt=since).update(is_selected=False)
        batch.selected = counted_new(entries.filter(is_selected=True))
        batch.state, batch.progress, batch.updated_at = Import.State.WAITING, 0.0, now
        batch.save(update_fields=["selected", "state", "progress", "updated_at"])
        activity.note(user, Activity.IMPORT_STARTED)
        queue.want_worker(batch, now=now)
    return batch


def cancel(*, user: User, import_id: str) -> Import:
    """Stop an import that has not ended. Raises `NotFound` and `WrongState`."""
    with transaction.atomic():
        batch = _locked(user, import_id, *Import.State.with_upload())
        finish(batch, Import.State.CANCELLED)
    return batch


def undo(*, user: User, import_id: str, force: bool, now: datetime) -> Import:
    """Remove the imported data. Raises `NotFound`, `WrongState` and, without `force`, `ContinuedSince`."""
    with transaction.atomic():
        batch = _locked(user, import_id, Import.State.DONE, Import.State.CANCELLED, Import.State.FAILED)
        if not force and (changed := continued_since(batch, user)):
            raise ContinuedSince(changed)
        batch.state, batch.progress, batch.error, batch.updated_at = Import.State.UNDOING, 0.0, "", now
        batch.save(update_fields=["state", "progress", "error", "updated_at"])
        activity.note(user, Activity.IMPORT_UNDONE, count=max(1, (batch.stored or {}).get("conversations", 0)))
        queue.want_worker(batch, now=now)
    return batch


def remove(*, user: User, import_id: str) -> None:
    """Remove an import from the list: a running one ends, and its imported data stays. Raises `NotFound`."""
    with transaction.atomic():
        batch = _locked(user, import_id)
        queue.end(batch)
        transaction.on_commit(partial(uploads.delete, batch), robust=True)
        # What it brought or made longer stays for good, and stays known.
        items = ImportedItem.objects.for_user(user).filter(Q(batch=batch) | Q(lengthened_by=batch.pk))
        items.update(batch=None, lengthened_by=None)
        # The database deletes its lines by cascade.
        Import.objects.for_user(user).filter(pk=batch.pk).delete()


def _locked(user: User, import_id: str, *states: Import.State) -> Import:
    batch = Import.objects.for_user(user).select_for_update().filter(pk=parse_id(import_id)).first()
    if batch is None:
        raise NotFound
    if states and batch.state not in states:
        raise WrongState(_("The import is %(state)s, and this cannot be done then."), state=batch.state)
    return batch
