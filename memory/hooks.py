"""What memory gives the apps beneath it, by the dotted paths in the settings: notes for the chat, and the export."""

from collections.abc import Iterator
from typing import Any

from intake.exporting import in_pages
from intake.models import User
from memory import documents
from memory.embedders import get_embedder
from memory.embedders.base import UNCALIBRATED
from memory.models import MemoryDocument, MemoryRecord

# A document may have half a million characters.
DOCUMENTS_AT_ONCE = 10


def notes(user: User, *, length: int) -> str:
    """`settings.CHAT_NOTES`: the beginning of the person's MEMORY.md, at most `length` characters."""
    return documents.beginning(user=user, day=None, length=length)


def far_distance() -> float:
    """`settings.CHAT_FAR_DISTANCE`: beyond it a match is mostly chance."""
    return (get_embedder().calibration or UNCALIBRATED).far


def exported_documents(*, user: User) -> Iterator[dict[str, Any]]:
    """`settings.ACCOUNT_EXPORTS`."""
    for document in in_pages(MemoryDocument.objects.for_user(user), size=DOCUMENTS_AT_ONCE):
        yield {
            "kind": document.kind,
            "date": document.date,
            "content": document.content,
            "created_at": document.created_at,
            "updated_at": document.updated_at,
        }


def exported_records(*, user: User) -> Iterator[dict[str, Any]]:
    """`settings.ACCOUNT_EXPORTS`."""
    for record in in_pages(MemoryRecord.objects.for_user(user)):
        yield {
            "id": record.pk,
            "content": record.content,
            "type": record.type,
            "project_id": record.project_id,
            "tags": record.tags,
            "created_at": record.created_at,
        }
