"""The texts of memory records: each record is one."""

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from memory.models import Corpus, MemoryRecord
from memory.sources.base import Entry, Place, Reader, SourceKey, Text

ONLY_CHUNK = 0


class RecordReader(Reader[MemoryRecord]):
    corpus = Corpus.RECORD
    columns = {"source_id": "pk"}

    def rows(self) -> QuerySet[MemoryRecord, Any]:
        """See Reader."""
        return MemoryRecord.objects.all()

    def rows_of(self, keys: Iterable[SourceKey]) -> QuerySet[MemoryRecord, Any]:
        """See Reader."""
        return self.rows().filter(pk__in={key.source_id for key in keys})

    def entry(self, row: MemoryRecord) -> Entry:
        """See Reader."""
        return entry_of(row)


def entry_of(record: MemoryRecord) -> Entry:
    key = SourceKey(Corpus.RECORD, record.pk, ONLY_CHUNK)
    text = Text(key=key, user_id=record.user_id, said_at=record.created_at, said=record.content)
    return Entry(place_of(record), [text])


def place_of(record: MemoryRecord) -> Place:
    return Place(record.user_id, Corpus.RECORD, record.pk, ONLY_CHUNK)
