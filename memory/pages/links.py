"""Where what was found is read: the very turn, the conversation, the document, the record."""

from datetime import date
from uuid import UUID

from django.urls import reverse

from intake.links import conversation_path
from memory.search.sources import Reference


def path_to(reference: Reference) -> str:
    if reference.conversation_id is not None:
        return conversation_path(reference.conversation_id, turn_number=reference.turn_number)
    if reference.record_id is not None:
        return record_path(reference.record_id)
    return document_path(reference.day if reference.kind == "daily_log" else None)


def document_path(day: date | None) -> str:
    """MEMORY.md has no day."""
    return reverse("memory:memory") if day is None else reverse("memory:log", args=[day.isoformat()])


def editing_path(day: date | None) -> str:
    return reverse("memory:memory") if day is None else reverse("memory:edit_log", args=[day.isoformat()])


def record_path(record_id: UUID) -> str:
    return reverse("memory:record", args=[record_id])
