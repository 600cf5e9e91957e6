"""Notes: documents of their own, each with a title, that were brought along from elsewhere. Kept and indexed here."""

from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from core.errors import NotFound
from intake.models import User
from memory import indexing
from memory.models import MemoryDocument
from memory.sources import document_entry

MAX_NOTES = 100


def create(*, user: User, title: str, content: str, at: datetime) -> MemoryDocument:
    """`at`: when it was written, by which it is found."""
    with transaction.atomic():
        note = MemoryDocument.objects.create(
            user=user, kind=MemoryDocument.Kind.NOTE, title=title, content=content, created_at=at, updated_at=at
        )
        indexing.index(document_entry(note), now=timezone.now())
    return note


def rewrite(*, user: User, note_id: UUID, title: str, content: str, at: datetime) -> None:
    """Raises `NotFound`."""
    with transaction.atomic():
        note = _locked(user, note_id)
        note.title, note.content, note.updated_at = title, content, at
        note.version += 1
        note.save(update_fields=["title", "content", "updated_at", "version"])
        indexing.index(document_entry(note), now=timezone.now())


def read(*, user: User, note_id: UUID) -> MemoryDocument:
    """Raises `NotFound`."""
    note = MemoryDocument.objects.for_user(user).notes().filter(pk=note_id).first()
    if note is None:
        raise NotFound
    return note


def delete(*, user: User, note_id: UUID) -> None:
    """Raises `NotFound`."""
    with transaction.atomic():
        _locked(user, note_id).delete()


def _locked(user: User, note_id: UUID) -> MemoryDocument:
    note = MemoryDocument.objects.for_user(user).notes().select_for_update(of=("self",)).filter(pk=note_id).first()
    if note is None:
        raise NotFound
    return note
