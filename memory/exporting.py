"""What memory adds to the export of an account (`settings.ACCOUNT_EXPORTS`): documents and records."""

from collections.abc import Iterator
from typing import Any

from intake.exporting import in_pages
from intake.models import User
from memory.models import MemoryDocument, MemoryRecord

# A document may have half a million characters.
DOCUMENTS_AT_ONCE = 10


def documents(*, user: User) -> Iterator[dict[str, Any]]:
    for document in in_pages(MemoryDocument.objects.for_user(user), size=DOCUMENTS_AT_ONCE):
        yield {
            "kind": document.kind,
            "date": document.date,
            "content": document.content,
            "created_at": document.created_at,
            "updated_at": document.updated_at,
        }


def records(*, user: User) -> Iterator[dict[str, Any]]:
    for record in in_pages(MemoryRecord.objects.for_user(user)):
        yield {
            "id": record.pk,
            "content": record.content,
            "type": record.type,
            "project_id": record.project_id,
            "tags": record.tags,
            "created_at": record.created_at,
        }
