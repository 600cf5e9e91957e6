"""The first source: what was written down, which is MEMORY.md, the daily logs and the typed records."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from memory.models import Corpus, MemoryDocument, MemoryRecord
from memory.models.corpora import Key, Scope
from memory.search.history.engine import related
from memory.search.history.passages import Part
from memory.search.history.requests import HistoryScope
from memory.search.history.sources import Asked, Hit, Kind, Passage, Reference, Source
from memory.sources.documents import entry_of
from memory.sources.records import ONLY_CHUNK

CORPORA = (Corpus.MEMORY, Corpus.DAILY_LOG, Corpus.RECORD)


class Memories(Source):
    name = "memory"

    def find(self, asked: Asked) -> list[Hit]:
        """See Source."""
        corpora = (Corpus.DAILY_LOG,) if asked.scope is HistoryScope.DAILY_LOG else CORPORA
        scope = Scope(asked.user, corpora, asked.period.since, asked.period.until)
        return [Hit(self.name, each.key, each.relevance, each.said_at) for each in related(scope, asked)]

    def read(self, keys: Sequence[Key], asked: Asked) -> Mapping[Key, Passage]:
        """See Source."""
        ids = {id_ for id_, _ in keys}
        return {key: passage for key, passage in (_documents(ids, asked) | _records(ids, asked)).items() if key in keys}


def _documents(ids: set[UUID], asked: Asked) -> dict[Key, Passage]:
    documents = MemoryDocument.objects.for_user(asked.user).filter(pk__in=ids).select_related("user")
    return {
        (document.pk, text.key.chunk_index): Passage(reference=_reference_of(document, asked), parts=[Part(text.said)])
        for document in documents
        for text in entry_of(document).texts
    }


def _reference_of(document: MemoryDocument, asked: Asked) -> Reference:
    if document.date is not None:
        return Reference(kind=Kind.DAILY_LOG, day=document.date, document_id=document.pk)
    day = document.updated_at.astimezone(asked.zone).date()
    return Reference(kind=Kind.MEMORY, day=day, document_id=document.pk)


def _records(ids: set[UUID], asked: Asked) -> dict[Key, Passage]:
    records = MemoryRecord.objects.for_user(asked.user).filter(pk__in=ids)
    return {(record.pk, ONLY_CHUNK): _record_passage(record, asked) for record in records}


def _record_passage(record: MemoryRecord, asked: Asked) -> Passage:
    day = record.created_at.astimezone(asked.zone).date()
    reference = Reference(kind=Kind.MEMORY, day=day, record_id=record.pk)
    return Passage(reference=reference, parts=[Part(record.content)])
