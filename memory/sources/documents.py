"""The texts of MEMORY.md and of the daily logs: one for each chunk of a document."""

from collections.abc import Iterable
from datetime import datetime, time
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.db.models import QuerySet

from intake.models import User
from memory.document_chunks import document_chunks
from memory.models import Corpus, MemoryDocument
from memory.sources.base import Entry, Place, Reader, SourceKey, Text

NOON = time(12)


class DocumentReader(Reader[MemoryDocument]):
    """For one of the two kinds of document."""

    columns = {"source_id": "pk"}

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus

    def rows(self) -> QuerySet[MemoryDocument, Any]:
        """See Reader: an empty document has nothing to index."""
        filled = MemoryDocument.objects.filter(kind=self.corpus).exclude(content="")
        # Of the person nothing but the time zone, which is all that a worker is shown.
        own = [field.name for field in MemoryDocument._meta.concrete_fields if field.name != "user"]
        return filled.select_related("user").only(*own, "user__time_zone")

    def rows_of(self, keys: Iterable[SourceKey]) -> QuerySet[MemoryDocument, Any]:
        """See Reader."""
        return self.rows().filter(pk__in={key.source_id for key in keys})

    def entry(self, row: MemoryDocument) -> Entry:
        """See Reader."""
        return entry_of(row)


def entry_of(document: MemoryDocument) -> Entry:
    """All of a document's texts."""
    said_at = said_at_of(document)
    texts = [
        Text(
            key=SourceKey(document.corpus, document.pk, index),
            user_id=document.user_id,
            said_at=said_at,
            said=chunk.text,
        )
        for index, chunk in enumerate(document_chunks(document.content))
    ]
    return Entry(place_of(document), texts)


def place_of(document: MemoryDocument) -> Place:
    return Place(document.user_id, document.corpus, document.pk)


def said_at_of(document: MemoryDocument) -> datetime:
    """When MEMORY.md was last written; of a log noon of its day, which is that day in every time zone nearby."""
    if document.date is None:
        return document.updated_at
    return datetime.combine(document.date, NOON, _time_zone(document.user))


def _time_zone(user: User) -> ZoneInfo:
    try:
        return ZoneInfo(user.time_zone)
    except (ValueError, ZoneInfoNotFoundError):
        return ZoneInfo("UTC")
