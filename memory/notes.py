"""Notes: imported documents with a title. Stores and indexes them."""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from core.errors import NotFound
from core.ids import uuid7
from core.pagination import ListPage, Position, page_of
from intake import quotas
from intake.accounts import activity
from intake.models import Activity, User
from memory import indexing
from memory.models import MemoryDocument
from memory.sources import document_entry

PAGE = 50


def create(
    *,
    user: User,
    title: str,
    content: str,
    at: datetime,
    note_id: UUID | None = None,
    created_at: datetime | None = None,
) -> MemoryDocument:
    """`at`: the time of the last change, by which searches find it. `note_id`: for a note that is restored."""
    quotas.take(user.pk, size=len(content.encode()))
    with transaction.atomic():
        note = MemoryDocument.objects.create(
            id=note_id or uuid7(),
            user=user,
            kind=MemoryDocument.Kind.NOTE,
            title=title,
            content=content,
            created_at=created_at or at,
            updated_at=at,
        )
        indexing.index(document_entry(note), now=timezone.now())
    return note


def rewrite(*, user: User, note_id: UUID, title: str, content: str, at: datetime, is_given_back: bool = False) -> None:
    """Raises `NotFound` and `QuotaExceeded`. `is_given_back`: for undoing, which needs no quota."""
    with transaction.atomic():
        note = _locked(user, note_id)
        if not is_given_back:
            quotas.take_growth(user.pk, before=note.content, after=content)
        note.title, note.content, note.updated_at = title, content, at
        note.version += 1
        note.save(update_fields=["title", "content", "updated_at", "version"])
        indexing.index(document_entry(note), now=timezone.now())


def list_notes(*, user: User, after: Position | None = None) -> ListPage[MemoryDocument]:
    """The latest first, without their content."""
    notes = MemoryDocument.objects.for_user(user).notes().defer("content")
    return page_of(notes, by="updated_at", after=after, size=PAGE)


def read(*, user: User, note_id: UUID) -> MemoryDocument:
    """Raises `NotFound`."""
    note = MemoryDocument.objects.for_user(user).notes().filter(pk=note_id).first()
    if note is None:
        raise NotFound
    return note


def delete(*, user: User, note_id: UUID, is_noted: bool = True) -> None:
    """Raises `NotFound`. `is_noted`: whether it gets its own line in the user's activity."""
    with transaction.atomic():
        _locked(user, note_id).delete()
        if is_noted:
            activity.note(user, Activity.MEMORY_DELETED)


def _locked(user: User, note_id: UUID) -> MemoryDocument:
    note = MemoryDocument.objects.for_user(user).notes().select_for_update(of=("self",)).filter(pk=note_id).first()
    if note is None:
        raise NotFound
    return note
