"""Describes the texts of the map and the timeline: their chat, document or record, and their beginning."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import NamedTuple
from uuid import UUID

from intake.models import Conversation, User
from memory.models import Corpus, IndexedText, MemoryDocument, MemoryRecord
from memory.search.sources import UNTITLED, Kind, Reference
from memory.sources import SourceKey, load

SNIPPET = 220
RECORD = "Record"


class Source(NamedTuple):
    """A chat, a document or a record, as the index names it."""

    corpus: str
    source_id: UUID


@dataclass(frozen=True, slots=True)
class MapText:
    """A text on the map. `reference` is where it can be read."""

    id: int
    corpus: Corpus
    title: str
    said_at: datetime
    snippet: str
    reference: Reference


def texts_of(user: User, ids: Sequence[int]) -> list[MapText]:
    """The user's own ones among these, in this order, without deleted ones."""
    rows = {row.pk: row for row in IndexedText.objects.for_user(user).filter(pk__in=ids).defer("signature")}
    keys = {row.pk: SourceKey(Corpus(row.corpus), row.source_id, row.chunk_index) for row in rows.values()}
    loaded = {text.key: text for text in load(keys.values()) if text.user_id == user.pk}
    references = references_of(user, {Source(row.corpus, row.source_id): row.said_at for row in rows.values()})
    shown = []
    for text_id in ids:
        text = loaded.get(keys[text_id]) if text_id in keys else None
        row = rows.get(text_id)
        reference = references.get(Source(row.corpus, row.source_id)) if row else None
        if row is None or text is None or reference is None:
            continue
        corpus, title, place = reference
        if corpus == Corpus.CHAT:
            place = Reference(
                kind=Kind.MESSAGE,
                day=user.local_time(row.said_at).date(),
                conversation_id=row.source_id,
                turn_number=row.chunk_index,
                session=title,
            )
        shown.append(MapText(text_id, corpus, title, row.said_at, _beginning(text.said or text.answered), place))
    return shown


def references_of(user: User, sources: Mapping[Source, datetime]) -> dict[Source, tuple[Corpus, str, Reference]]:
    """The corpus, title and address of each of the user's chats, documents and records; a log's title is its day.

    `sources`: with the time by which each is listed.
    """
    by_corpus: dict[str, list[UUID]] = defaultdict(list)
    for source in sources:
        by_corpus[source.corpus].append(source.source_id)
    day_of = {source: user.local_time(at).date() for source, at in sources.items()}
    found: dict[Source, tuple[Corpus, str, Reference]] = {}
    chats = Conversation.objects.for_user(user).filter(pk__in=by_corpus[Corpus.CHAT])
    for pk, title in chats.values_list("pk", "title"):
        source = Source(Corpus.CHAT, pk)
        named = " ".join(title.split()) or UNTITLED
        place = Reference(kind=Kind.SESSION, day=day_of[source], conversation_id=pk, session=named)
        found[source] = Corpus.CHAT, named, place
    ids = by_corpus[Corpus.MEMORY] + by_corpus[Corpus.DAILY_LOG]
    for document in MemoryDocument.objects.for_user(user).filter(pk__in=ids).defer("content"):
        source = Source(document.corpus, document.pk)
        found[source] = document.corpus, *_of_document(document, source, day_of)
    records = MemoryRecord.objects.for_user(user).filter(pk__in=by_corpus[Corpus.RECORD])
    for pk in records.values_list("pk", flat=True):
        source = Source(Corpus.RECORD, pk)
        found[source] = Corpus.RECORD, RECORD, Reference(kind=Kind.MEMORY, day=day_of[source], record_id=pk)
    return found


def _of_document(document: MemoryDocument, source: Source, day_of: Mapping[Source, date]) -> tuple[str, Reference]:
    if document.date is not None:
        day = document.date
        return day.isoformat(), Reference(kind=Kind.DAILY_LOG, day=day, document_id=document.pk)
    is_note = document.kind == MemoryDocument.Kind.NOTE
    name = document.title or UNTITLED if is_note else str(document.get_kind_display())
    place = Reference(kind=Kind.MEMORY, day=day_of[source], document_id=document.pk, document=name, is_note=is_note)
    return name, place


def _beginning(text: str) -> str:
    """On one line, cut between words."""
    line = " ".join(text[: SNIPPET * 4].split())
    return line if len(line) <= SNIPPET else line[:SNIPPET].rsplit(" ", 1)[0] + " …"
