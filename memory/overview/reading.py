"""Reads the map and the timeline, and describes their texts.

Reads the map: the clusters with their words, all points, and single texts.

Reading also requests a drawing: `look` records the time in the map's row, which is a worker's job until the map is up
to date.
"""

from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Left
from pydantic import AwareDatetime, Field, PlainSerializer

from core.errors import NotFound
from core.isolation.acting import acting_as
from core.text import first_line, shortened
from core.validation import Shape
from intake.models import Conversation, User
from memory.index import writer
from memory.index.sources import SourceKey, load
from memory.index.terms import fetch
from memory.models import Corpus, IndexedText, MapPoint, MemoryDocument, MemoryMap, MemoryRecord, TellingWord
from memory.models.documents import CLOSED_SOURCES, PROJECT_SOURCES, closed_sources, project_sources
from memory.models.embeddings import SIDE
from memory.search.history import HistoryRequest, search_history
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


def _place(reference: Reference) -> PlaceOutput:
    return PlaceOutput.model_validate(reference)


SourceCorpus = Annotated[Corpus, Field(serialization_alias="source")]
ReadAt = Annotated[Reference, PlainSerializer(_place, return_type=PlaceOutput), Field(serialization_alias="place")]


class MapTextOutput(Shape):
    """A text on the map; `snippet` is how it begins."""

    id: int
    corpus: SourceCorpus
    title: str
    said_at: AwareDatetime
    snippet: str
    reference: ReadAt


def texts_of(user: User, ids: Sequence[int]) -> list[MapTextOutput]:
    """The user's own ones among these, in this order, without deleted ones."""
    rows = {row.pk: row for row in IndexedText.objects.for_user(user).filter(pk__in=ids).defer("signature")}
    keys = {row.pk: SourceKey(Corpus(row.corpus), row.source_id, row.chunk_index) for row in rows.values()}
    loaded = {text.key: text for text in load(keys.values()) if text.user_id == user.pk}
    references = references_of(user, {(row.corpus, row.source_id): row.said_at for row in rows.values()})
    shown = []
    for text_id in ids:
        text = loaded.get(keys[text_id]) if text_id in keys else None
        row = rows.get(text_id)
        reference = references.get((row.corpus, row.source_id)) if row else None
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
        shown.append(
            MapTextOutput(
                id=text_id,
                corpus=corpus,
                title=title,
                said_at=row.said_at,
                snippet=_beginning(text.said or text.answered),
                reference=place,
            )
        )
    return shown


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


def _beginning(text: str) -> str:
    """On one line, cut between words."""
    line = " ".join(text[: SNIPPET * 4].split())
    return shortened(line, SNIPPET)


# The task's name as a string: the tasks import the module that wakes their workers.
TASK = "memory.draw_maps"
# The time of a visit is rounded to the hour, so that the next one writes nothing.
NOTED = timedelta(hours=1)
NEWEST = 3
# The number of texts that a search marks on the map.
FOUND = 50
# The number of words that name a cluster.
NAMING = 3
ON_MAP = Annotated[int, Field(ge=0, le=SIDE)]

wake_drawer = writer.Waker(TASK).wake_worker

_CHATS = """
SELECT point.text_id, title
  FROM map_points AS point
  JOIN indexed_texts AS text ON text.user_id = point.user_id AND text.id = point.text_id
  JOIN intake_conversations AS chat ON chat.user_id = point.user_id AND chat.id = source_id
 WHERE point.user_id = %(user_id)s AND corpus = 'chat'
"""


def _points(project: str) -> str:
    """One column per field of a point, because there are tens of thousands."""
    return f"""
SELECT point.text_id, x, y, cluster, array_position(%(corpora)s::text[], corpus::text) - 1,
       floor(date_part('epoch', said_at) / 86400)::int
  FROM map_points AS point
  JOIN indexed_texts AS text ON text.user_id = point.user_id AND text.id = point.text_id
 WHERE point.user_id = %(user_id)s AND {_within(project)}
 ORDER BY said_at, point.text_id
"""  # noqa: S608 - only constants of ours


def _newest(project: str) -> str:
    return f"""
SELECT text_id, cluster
  FROM (SELECT point.text_id, cluster,
               row_number() OVER (PARTITION BY cluster ORDER BY said_at DESC, text_id DESC) AS place
          FROM map_points AS point
          JOIN indexed_texts AS text ON text.user_id = point.user_id AND text.id = point.text_id
         WHERE point.user_id = %(user_id)s AND {_within(project)}) AS ranked
 WHERE place <= %(newest)s
 ORDER BY cluster, place
"""  # noqa: S608 - only constants of ours


def _centres(project: str) -> str:
    return f"""
SELECT cluster, count(*), percentile_disc(0.5) WITHIN GROUP (ORDER BY x), percentile_disc(0.5) WITHIN GROUP (ORDER BY y)
  FROM map_points AS point
  JOIN indexed_texts AS text ON text.user_id = point.user_id AND text.id = point.text_id
 WHERE point.user_id = %(user_id)s AND {_within(project)}
 GROUP BY cluster
 ORDER BY count(*) DESC, cluster
"""  # noqa: S608 - only constants of ours


def _placed(project: str) -> str:
    return f"""
SELECT count(*), count(point.text_id)
  FROM indexed_texts AS text LEFT JOIN map_points AS point ON point.user_id = text.user_id AND point.text_id = text.id
 WHERE text.user_id = %(user_id)s AND corpus <> 'attachment' AND {_within(project)}
"""  # noqa: S608 - only constants of ours


class MapState(StrEnum):
    """`EMPTY`: there is nothing to draw. `DRAWING`: a worker has not drawn it yet. `READY`: it can be shown."""

    EMPTY = "empty"
    DRAWING = "drawing"
    READY = "ready"


class ClusterOutput(Shape):
    """Texts that are alike. `x` and `y`: its middle; `words` tell it from the others, the most telling first."""

    number: Annotated[int, Field(serialization_alias="cluster")]
    name: str
    texts: int
    x: ON_MAP
    y: ON_MAP
    words: list[str]
    newest: list[MapTextOutput]


class MapOutput(Shape):
    """The clusters, the largest first. `texts` counts all that there are, `placed` those that are on the map."""

    state: MapState
    texts: int
    placed: int
    drawn_at: AwareDatetime | None
    side: Annotated[int, Field(description="Coordinates are whole numbers from 0 to this, `y` downwards.")] = SIDE
    clusters: list[ClusterOutput]


class PointsOutput(Shape):
    """Every point, the oldest first, a list for each thing: point k is `id[k]`, `x[k]`, `y[k]` and so on."""

    id: list[int]
    x: list[ON_MAP]
    y: list[ON_MAP]
    cluster: list[int]
    source: Annotated[list[int], Field(description="A place in `sources`.")]
    day: Annotated[list[int], Field(description="Days since 1970-01-01, in UTC.")]
    sources: list[Corpus]
    title: Annotated[list[int], Field(description="A place in `titles`, of a chat; -1 for other texts.")]
    titles: list[str]


def look(user: User, *, now: datetime) -> None:
    """Record the visit of the user and have the map drawn."""
    with transaction.atomic():
        present, is_new = MemoryMap.objects.get_or_create(user=user, defaults={"asked_at": now, "due_at": now})
        if not is_new and present.asked_at < now - NOTED:
            MemoryMap.objects.filter(pk=user.pk).update(asked_at=now)
    transaction.on_commit(wake_drawer, robust=True)


def read_atlas(*, user: User, now: datetime, project: str = "") -> MapOutput:
    """`project`: as for the timeline."""
    look(user, now=now)
    ((texts, placed),) = fetch(_placed(project), _of(user, project))
    drawn_at = MemoryMap.objects.filter(user=user).values_list("drawn_at", flat=True).first()
    state = MapState.READY if placed else MapState.DRAWING if texts else MapState.EMPTY
    clusters = _clusters(user, project) if placed else []
    return MapOutput(state=state, texts=texts, placed=placed, drawn_at=drawn_at, clusters=clusters)


def words_by_bucket(user: User, kind: str, *, project: str = "") -> dict[int, list[TellingWord]]:
    words: dict[int, list[TellingWord]] = defaultdict(list)
    # The text says where the word stands: a word of a closed project tells of it.
    texts, name = IndexedText.objects.for_user(user), project.removeprefix("-")
    its = texts.filter(source_id__in=project_sources(user, name)).values("pk")
    found = TellingWord.objects.filter(user=user, kind=kind)
    if name and name == project:
        found = found.filter(text_id__in=its)
    else:
        closed = texts.filter(source_id__in=closed_sources(user)).values("pk")
        found = found.exclude(text_id__in=closed)
        found = found.exclude(text_id__in=its) if name else found
    for word in found.order_by("bucket", "rank"):
        words[word.bucket].append(word)
    return words


def read_points(*, user: User, project: str = "") -> PointsOutput:
    """`project`: as for the timeline."""
    corpora = [corpus.value for corpus in Corpus]
    parameters = {**_of(user, project), "corpora": corpora}
    rows = fetch(_points(project), parameters)
    places, xs, ys, clusters, sources, days = ([row[place] for row in rows] for place in range(6))
    shown = set(places)
    of_chats = {text_id: title for text_id, title in fetch(_CHATS, parameters) if text_id in shown}
    titles = {title: number for number, title in enumerate(dict.fromkeys(of_chats.values()))}
    # Unvalidated: validating hundreds of thousands of our own numbers would take longer than reading them.
    return PointsOutput.model_construct(
        id=places,
        x=xs,
        y=ys,
        cluster=clusters,
        source=sources,
        day=days,
        sources=corpora,
        title=[titles[of_chats[text_id]] if text_id in of_chats else -1 for text_id in places],
        titles=list(titles),
    )


def find_texts(*, user: User, query: str, now: datetime, project: str = "") -> list[int]:
    """The ids of the texts that a search finds, the best first. Raises what `search_history` raises.

    Must not run in a transaction: the search asks the models' endpoints.
    """
    found = search_history(HistoryRequest(query=query, max_results=FOUND, project=project), user=user, now=now)
    places = {place: rank for rank, place in enumerate(map(_place_in_index, [one.reference for one in found.results]))}
    sources = {source for source, _ in places if source is not None}

    with acting_as(user):
        texts = IndexedText.objects.for_user(user).filter(source_id__in=sources)
        ranks: dict[int, int] = {}
        for pk, source, number in texts.values_list("pk", "source_id", "chunk_index"):
            rank = places.get((source, number), places.get((source, None)))
            if rank is not None:
                ranks[pk] = rank
        return sorted(ranks, key=lambda pk: (ranks[pk], pk))


def _place_in_index(reference: Reference) -> tuple[UUID | None, int | None]:
    """A turn of a chat; or a chat, document or record as a whole."""
    if reference.conversation_id is not None:
        return reference.conversation_id, reference.turn_number
    return reference.document_id or reference.record_id, None


def read_text(*, user: User, text_id: int) -> MapTextOutput:
    """Raises `NotFound` if it is not the user's own, or not on the map."""
    if not MapPoint.objects.filter(user=user, pk=text_id).exists():
        raise NotFound
    for text in texts_of(user, [text_id]):
        return text
    raise NotFound


def _clusters(user: User, project: str) -> list[ClusterOutput]:
    # A group is called by the same words wherever it is shown, but never by those of a closed project.
    words = words_by_bucket(user, TellingWord.CLUSTER)
    newest = fetch(_newest(project), {**_of(user, project), "newest": NEWEST})
    texts = {text.id: text for text in texts_of(user, [text_id for text_id, _ in newest])}
    by_cluster: dict[int, list[MapTextOutput]] = defaultdict(list)
    for text_id, cluster in newest:
        if text_id in texts:
            by_cluster[cluster].append(texts[text_id])
    clusters = []
    named: set[str] = set()
    for number, count, x, y in fetch(_centres(project), _of(user, project)):
        # Words of a larger cluster are used last, so that two similar clusters have different names.
        telling = sorted((word.word for word in words[number]), key=named.__contains__)
        named.update(telling[:NAMING])
        name = ", ".join(telling[:NAMING]) or f"Group {number + 1}"
        newest_here = by_cluster[number]
        clusters.append(
            ClusterOutput(number=number, name=name, texts=count, x=x, y=y, words=telling, newest=newest_here)
        )
    return clusters


def _of(user: User, project: str) -> dict[str, Any]:
    """What the conditions of `_within` name."""
    return {"user_id": user.pk, "project": project.removeprefix("-")}


# The counts of the timeline are live. A worker finds the words, together with the map (`memory.overview.drawing`).
# Files are in neither: both show what was said and noted.

PAGE = 100
# The last month that there is has no month after it.
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


def _counts(project: str) -> str:
    """A chat counts its turns; a document with several chunks counts once."""
    return f"""
SELECT date_part('year', local)::int, date_part('month', local)::int, corpus,
       CASE corpus WHEN 'chat' THEN count(*) ELSE count(DISTINCT source_id) END
  FROM (SELECT said_at AT TIME ZONE %(zone)s AS local, corpus, source_id
          FROM indexed_texts
         WHERE user_id = %(user_id)s AND corpus <> 'attachment' AND {_within(project)}) AS text
 GROUP BY 1, 2, corpus
 ORDER BY 1, 2
"""  # noqa: S608 - only constants of ours


def _sources(project: str) -> str:
    return f"""
SELECT corpus, source_id, count(*), max(said_at), min(chunk_index)
  FROM indexed_texts
 WHERE user_id = %(user_id)s AND corpus <> 'attachment' AND said_at >= %(since)s AND said_at < %(until)s
   AND {_within(project)}
 GROUP BY corpus, source_id
 ORDER BY max(said_at) DESC, source_id
 LIMIT %(limit)s OFFSET %(skip)s
"""  # noqa: S608 - only constants of ours


def _within(project: str) -> str:
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
    asked = {**_of(user, project), "zone": user.zone.key}
    for year, month, corpus, count in fetch(_counts(project), asked):
        counts[date(year, month, 1)][corpus] = count
    words = words_by_bucket(user, TellingWord.MONTH, project=project)
    months = [_month(first, counts.get(first, {}), words[bucket_of(first)]) for first in _from_first_to_last(counts)]
    drawn = MemoryMap.objects.filter(user=user).exclude(drawn_at=None).exists()
    return TimelineOutput(months=months, is_drawing=bool(months) and not drawn)


def read_month(*, user: User, first: date, skip: int = 0, project: str = "") -> MonthListOutput:
    """`project`: as for the timeline."""
    since, until = moments_of(first, last_day(first), user.zone)
    span = {"since": since, "until": until or END_OF_TIME}
    parameters = {**_of(user, project), **span, "limit": PAGE + 1, "skip": skip}
    rows = fetch(_sources(project), parameters)
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


def bucket_of(first: date) -> int:
    return first.year * 100 + first.month


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
