"""Reads the timeline, and says where the texts of an overview are read.

Reading also requests a drawing: `look` records the time in the map's row, which is a worker's job until the map is up
to date.
"""

from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Left
from pydantic import AwareDatetime, Field, PlainSerializer

from core.text import first_line
from core.validation import Shape
from intake.models import Conversation, User
from memory.index import writer
from memory.index.terms import fetch
from memory.models import Corpus, MemoryDocument, MemoryMap, MemoryRecord, TellingWord
from memory.models.documents import CLOSED_SOURCES, PROJECT_SOURCES, subquery
from memory.search.sources import UNTITLED, Kind, Reference, document_reference
from memory.search.time_windows import moments_of

SNIPPET = 220


Source = tuple[str, UUID]
"""A chat, a document or a record, as the index names it: by its corpus and its id."""


class PlaceOutput(Shape):
    """Where a text is read: a chat and a turn in it, a document, or a record."""

    conversation_id: UUID | None = None
    turn_number: int | None = None
    document_id: UUID | None = None
    record_id: UUID | None = None


SourceCorpus = Annotated[Corpus, Field(serialization_alias="source")]
ReadAt = Annotated[
    Reference,
    PlainSerializer(PlaceOutput.model_validate, return_type=PlaceOutput),
    Field(serialization_alias="place"),
]


def references_of(user: User, sources: Mapping[Source, datetime]) -> dict[Source, tuple[Corpus, str, Reference]]:
    """The corpus, title and address of each of the user's chats, documents and records; a log's title is its day.

    `sources`: with the time by which each is listed.
    """
    by_corpus: dict[str, list[UUID]] = defaultdict(list)
    for corpus, source_id in sources:
        by_corpus[corpus].append(source_id)
    day_of = {source: user.local_time(at).date() for source, at in sources.items()}
    found: dict[Source, tuple[Corpus, str, Reference]] = {}
    chats = Conversation.objects.for_user(user).filter(pk__in=by_corpus[Corpus.CHAT])
    for pk, title in chats.values_list("pk", "title"):
        source = (Corpus.CHAT, pk)
        named = " ".join(title.split()) or UNTITLED
        place = Reference(kind=Kind.SESSION, day=day_of[source], conversation_id=pk, session=named)
        found[source] = Corpus.CHAT, named, place
    ids = by_corpus[Corpus.MEMORY] + by_corpus[Corpus.DAILY_LOG]
    for document in MemoryDocument.objects.for_user(user).filter(pk__in=ids).defer("content"):
        source = (document.corpus, document.pk)
        place = document_reference(document, day_of[source])
        of_project = f" · {place.project}" if place.project and not place.is_note else ""
        title = place.day.isoformat() if place.document is None else f"{place.document}{of_project}"
        found[source] = document.corpus, title, place
    records = MemoryRecord.objects.for_user(user).filter(pk__in=by_corpus[Corpus.RECORD])
    for pk, beginning in records.values_list("pk", Left("content", SNIPPET)):
        source = (Corpus.RECORD, pk)
        found[source] = (
            Corpus.RECORD,
            first_line(beginning) or UNTITLED,
            Reference(kind=Kind.MEMORY, day=day_of[source], record_id=pk),
        )
    return found


wake_drawer = writer.Waker("memory.draw_maps").wake_worker


def look(user: User, *, now: datetime) -> None:
    """Record the visit of the user and have the map drawn."""
    with transaction.atomic():
        present, is_new = MemoryMap.objects.get_or_create(user=user, defaults={"asked_at": now, "due_at": now})
        # The time of a visit is rounded to the hour, so that the next one writes nothing.
        if not is_new and present.asked_at < now - timedelta(hours=1):
            MemoryMap.objects.filter(pk=user.pk).update(asked_at=now)
    transaction.on_commit(wake_drawer, robust=True)


def words_by_bucket(user: User, kind: str, *, project: str = "") -> dict[int, list[TellingWord]]:
    words: dict[int, list[TellingWord]] = defaultdict(list)
    # The text says where the word stands: a word of a closed project tells of it.
    texts = subquery(_TEXTS.format(within=within(project)), **_about(user, project))
    for word in TellingWord.objects.filter(user=user, kind=kind, text_id__in=texts).order_by("bucket", "rank"):
        words[word.bucket].append(word)
    return words


def rows_within(statement: str, user: User, project: str, **values: Any) -> list[tuple[Any, ...]]:
    """The rows of a statement about the user's texts that are `{within}` the project."""
    return fetch(statement.format(within=within(project)), {**_about(user, project), **values})


def _about(user: User, project: str) -> dict[str, Any]:
    return {"user_id": user.pk, "project": project.removeprefix("-")}


# The counts of the timeline are live. A worker finds the words, together with the map (`memory.overview.drawing`).
# Files are in neither: both show what was said and noted.

PAGE = 100
# The last month that there is has no month after it.
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


_TEXTS = "SELECT id FROM indexed_texts WHERE user_id = %(user_id)s AND {within}"
# A chat counts its turns; a document with several chunks counts once.
_COUNTS = """
SELECT date_part('year', local)::int, date_part('month', local)::int, corpus,
       CASE corpus WHEN 'chat' THEN count(*) ELSE count(DISTINCT source_id) END
  FROM (SELECT said_at AT TIME ZONE %(zone)s AS local, corpus, source_id
          FROM indexed_texts
         WHERE user_id = %(user_id)s AND corpus <> 'attachment' AND {within}) AS text
 GROUP BY 1, 2, corpus
 ORDER BY 1, 2
"""


_SOURCES = """
SELECT corpus, source_id, count(*), max(said_at), min(chunk_index)
  FROM indexed_texts
 WHERE user_id = %(user_id)s AND corpus <> 'attachment' AND said_at >= %(since)s AND said_at < %(until)s
   AND {within}
 GROUP BY corpus, source_id
 ORDER BY max(said_at) DESC, source_id
 LIMIT %(limit)s OFFSET %(skip)s
"""


def within(project: str) -> str:
    """The condition for texts of a project; with a hyphen before the name, of no such text. Only the first shows what
    is closed.
    """
    # Subqueries and not arrays: they are hashed, however many they are.
    if not project:
        return f"source_id NOT IN ({CLOSED_SOURCES})"
    if project.startswith("-"):
        return f"source_id NOT IN ({CLOSED_SOURCES} UNION ALL {PROJECT_SOURCES})"
    return f"source_id IN ({PROJECT_SOURCES})"


class WordOutput(Shape):
    """A word as a text has it, and how many of the month's texts have it, inflected or not."""

    word: str
    texts: int


class MonthOutput(Shape):
    """The texts of a month; `words` tell it from the other months, the most telling first."""

    # Its first day. MEMORY.md counts as a note of the month in which it was last changed.
    first: Annotated[
        date, PlainSerializer(lambda first: f"{first:%Y-%m}", return_type=str), Field(serialization_alias="month")
    ]
    turns: int
    logs: Annotated[int, Field(serialization_alias="daily_logs")]
    records: int
    notes: int
    words: list[WordOutput]

    @property
    def total(self) -> int:
        return self.turns + self.logs + self.records + self.notes

    @property
    def last(self) -> date:
        return last_day(self.first)


class TimelineOutput(Shape):
    """Every month from the first with a text to the last, oldest first."""

    # Without empty years.
    months: list[MonthOutput]
    is_drawing: Annotated[
        bool,
        Field(
            serialization_alias="drawing",
            description="The words have not been looked for yet: ask again in a moment.",
        ),
    ]


class MonthEntryOutput(Shape):
    """A chat, document or record of a month; `turns` are those of a chat in this month."""

    corpus: SourceCorpus
    title: str
    # Of the last change.
    at: AwareDatetime
    turns: int
    # Of a chat: the first of its turns in this month.
    reference: ReadAt


class MonthListOutput(Shape):
    """The latest first."""

    entries: list[MonthEntryOutput]
    more: Annotated[
        int | None, Field(description="Ask again with this `skip` for those behind these; null at the end.")
    ]


def read_timeline(*, user: User, now: datetime, project: str = "") -> TimelineOutput:
    """`project`: only of this one; with a hyphen before the name, of all but it. Without it, of all but closed ones."""
    look(user, now=now)
    counts: dict[date, dict[str, int]] = defaultdict(dict)
    for year, month, corpus, count in rows_within(_COUNTS, user, project, zone=user.zone.key):
        counts[date(year, month, 1)][corpus] = count
    words = words_by_bucket(user, TellingWord.MONTH, project=project)
    months = [
        _month(first, counts.get(first, {}), words[first.year * 100 + first.month])
        for first in _from_first_to_last(counts)
    ]
    drawn = MemoryMap.objects.filter(user=user).exclude(drawn_at=None).exists()
    return TimelineOutput(months=months, is_drawing=bool(months) and not drawn)


def read_month(*, user: User, first: date, skip: int = 0, project: str = "") -> MonthListOutput:
    """`project`: as for the timeline."""
    since, until = moments_of(first, last_day(first), user.zone)
    until = until or END_OF_TIME
    rows = rows_within(_SOURCES, user, project, since=since, until=until, limit=PAGE + 1, skip=skip)
    found = references_of(user, {(corpus, source_id): at for corpus, source_id, _, at, _ in rows})
    entries = []
    for corpus, source_id, count, at, first_turn in rows[:PAGE]:
        if (named := found.get((corpus, source_id))) is not None:
            kind, title, reference = named
            if kind == Corpus.CHAT:
                reference = replace(reference, turn_number=first_turn)
            turns = count if kind == Corpus.CHAT else 0
            entries.append(MonthEntryOutput(corpus=kind, title=title, at=at, turns=turns, reference=reference))
    return MonthListOutput(entries=entries, more=skip + PAGE if len(rows) > PAGE else None)


def last_day(first: date) -> date:
    """Of the month that begins with this day."""
    return first.replace(day=monthrange(first.year, first.month)[1])


def _month(first: date, counts: dict[str, int], words: list[TellingWord]) -> MonthOutput:
    return MonthOutput(
        first=first,
        turns=counts.get(Corpus.CHAT, 0),
        logs=counts.get(Corpus.DAILY_LOG, 0),
        records=counts.get(Corpus.RECORD, 0),
        notes=counts.get(Corpus.MEMORY, 0),
        words=[WordOutput(word=word.word, texts=word.texts) for word in words],
    )


def _from_first_to_last(counts: dict[date, dict[str, int]]) -> Iterator[date]:
    """Includes the empty months between them, but not empty years: a log may be of any year from 1900 on."""
    for year in sorted({month.year for month in counts}):
        for number in range(1, 13):
            if min(counts) <= (month := date(year, number, 1)) <= max(counts):
                yield month
