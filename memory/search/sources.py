"""The sources of `search_history`: what one is, and the two that the search by terms and meaning serves.

Each finds hits by its own measure, and reads the texts of those that may win. `Memories` are what was written down:
MEMORY.md, the daily logs and the typed records. `Messages` are turns that are like the query, in terms or meaning, and
turns that have it in so many letters. `memory.search.sessions` is the third.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any, ClassVar
from uuid import UUID
from zoneinfo import ZoneInfo

from django.db.models import F, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Greatest, Lower, StrIndex, Substr

from intake.models import Turn, User
from memory.chunking import ASSISTANT_LABEL, USER_LABEL
from memory.embedders import Calibration, Embedder
from memory.embedders.base import Vector
from memory.models import Corpus, MemoryDocument, MemoryRecord
from memory.models.corpora import Key, Scope
from memory.search.chat_history import Found, by_terms_and_meaning
from memory.search.excerpts import Segment
from memory.sources import ONLY_CHUNK, document_entry
from memory.trigrams import containing

WRITTEN_DOWN = (Corpus.MEMORY, Corpus.DAILY_LOG, Corpus.RECORD)
# Of a query as much is searched: more than an embedding model reads, and no more terms than a search can look up.
SEARCHED_LENGTH = 2_000
# What a text is worth that is near in meaning where too little is known to say what is far.
FAINT = 0.01
# Turns with the query's very letters: several times what anybody is shown.
LITERAL = 100
# So much of a message is read to find the excerpt in; of a longer one, around the query's very letters if it has them.
STRETCH = 32_000
UNTITLED = "Untitled"


class HistoryScope(StrEnum):
    ALL = "all"
    MEMORY = "memory"
    DAILY_LOG = "daily_log"
    SESSIONS = "sessions"


@dataclass(frozen=True, slots=True)
class Period:
    """From `since` on and before `until`; None leaves that side open."""

    since: datetime | None
    until: datetime | None


class Kind(StrEnum):
    """The kinds of result, in the contract's words."""

    MEMORY = "memory"
    DAILY_LOG = "daily_log"
    MESSAGE = "message"
    SESSION = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuestion:
    """A request as every source receives it: whose rows, the query, its vector and the model, and which time."""

    user: User
    query: str
    scope: HistoryScope
    period: Period
    zone: ZoneInfo
    vector: Vector
    embedder: Embedder


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that a source found. `raw` is the source's own measure: at least 0, higher is better."""

    source: str
    key: Key
    raw: float
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where a result is from. `day` is the person's own; `session` is the title of the conversation."""

    kind: Kind
    day: date
    conversation_id: UUID | None = None
    turn_number: int | None = None
    session: str | None = None
    document_id: UUID | None = None
    record_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundText:
    """The text of a hit. Of some only the segments that match are shown."""

    reference: Reference
    segments: Sequence[Segment]
    only_matching: bool = False


class HistorySource(ABC):
    name: ClassVar[str]
    """As in `settings.HISTORY_WEIGHTS`, and in the note that says that it was not searched to the end."""

    @abstractmethod
    def find(self, asked: HistoryQuestion) -> list[Hit]:
        """Rows of the caller's alone, in no order."""

    @abstractmethod
    def read(self, keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, FoundText]:
        """Without those that are gone meanwhile."""


class Memories(HistorySource):
    name = "memory"

    def find(self, asked: HistoryQuestion) -> list[Hit]:
        """See HistorySource."""
        corpora = (Corpus.DAILY_LOG,) if asked.scope is HistoryScope.DAILY_LOG else WRITTEN_DOWN
        scope = Scope(asked.user, corpora, asked.period.since, asked.period.until)
        return [Hit(self.name, each.key, each.relevance, each.said_at) for each in _related(scope, asked)]

    def read(self, keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, FoundText]:
        """See HistorySource."""
        ids = {id_ for id_, _ in keys}
        return {key: text for key, text in (_documents(ids, asked) | _records(ids, asked)).items() if key in keys}


def _documents(ids: set[UUID], asked: HistoryQuestion) -> dict[Key, FoundText]:
    documents = MemoryDocument.objects.for_user(asked.user).filter(pk__in=ids).select_related("user")
    return {
        (document.pk, text.key.chunk_index): FoundText(
            reference=_reference_of(document, asked), segments=[Segment(text.said)]
        )
        for document in documents
        for text in document_entry(document).texts
    }


def _reference_of(document: MemoryDocument, asked: HistoryQuestion) -> Reference:
    if document.date is not None:
        return Reference(kind=Kind.DAILY_LOG, day=document.date, document_id=document.pk)
    day = document.updated_at.astimezone(asked.zone).date()
    return Reference(kind=Kind.MEMORY, day=day, document_id=document.pk)


def _records(ids: set[UUID], asked: HistoryQuestion) -> dict[Key, FoundText]:
    records = MemoryRecord.objects.for_user(asked.user).filter(pk__in=ids)
    return {(record.pk, ONLY_CHUNK): _record_text(record, asked) for record in records}


def _record_text(record: MemoryRecord, asked: HistoryQuestion) -> FoundText:
    day = record.created_at.astimezone(asked.zone).date()
    reference = Reference(kind=Kind.MEMORY, day=day, record_id=record.pk)
    return FoundText(reference=reference, segments=[Segment(record.content)])


class Messages(HistorySource):
    name = "messages"

    def find(self, asked: HistoryQuestion) -> list[Hit]:
        """See HistorySource."""
        scope = Scope(asked.user, (Corpus.CHAT,), asked.period.since, asked.period.until)
        found = {each.key: each for each in _related(scope, asked)}
        literal = containing(scope, text=asked.query.strip(), limit=LITERAL)
        times = {key: each.said_at for key, each in found.items()}
        times |= _times([key for key in literal if key not in found], asked)
        raw = with_literal({key: each.relevance for key, each in found.items()}, literal)
        return [Hit(self.name, key, raw[key], times[key]) for key in raw if key in times]

    def read(self, keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, FoundText]:
        """See HistorySource: what is being asked right now is no history."""
        turns = Turn.objects.for_user(asked.user).with_keys(keys).exclude(status=Turn.Status.STREAMING)
        piece = asked.query.strip()[:SEARCHED_LENGTH]
        rows = turns.annotate(said=_stretch("user_message", piece), answered=_stretch("assistant_message", piece))
        columns = ("conversation_id", "turn_number", "said", "answered", "is_recall", "said_at", "conversation__title")
        return {(row[0], row[1]): _turn_text(asked, *row) for row in rows.values_list(*columns)}


def with_literal(relevances: Mapping[Key, float], literal: Collection[Key]) -> dict[Key, float]:
    """The raw score of every turn that either way found; relevances are at least 0.

    A turn that has the very letters is worth its relevance and, on top, as much as the best of those that have not. So
    among turns of the same age none that is merely alike stands above one that has the letters, and of these the engine
    says which fit best; one that it does not know (half a word, a piece of code) has the bonus alone.
    """
    having = set(literal)
    bonus = max((relevance for key, relevance in relevances.items() if key not in having), default=0.0) or 1.0
    merely_alike = {key: relevance for key, relevance in relevances.items() if key not in having}
    return merely_alike | {key: relevances.get(key, 0.0) + bonus for key in literal}


def _times(keys: Sequence[Key], asked: HistoryQuestion) -> dict[Key, datetime]:
    turns = Turn.objects.for_user(asked.user).with_keys(keys)
    return {(row[0], row[1]): row[2] for row in turns.values_list("conversation_id", "turn_number", "said_at")}


def _stretch(column: str, piece: str) -> Combinable:
    start = Greatest(Value(1), StrIndex(Lower(column), Lower(Value(piece))) - Value(STRETCH // 2))
    return Substr(F(column), start, STRETCH)


def _turn_text(asked: HistoryQuestion, *row: Any) -> FoundText:
    conversation_id, turn_number, said, answered, is_recall, said_at, title = row
    reference = Reference(
        kind=Kind.MESSAGE,
        day=said_at.astimezone(asked.zone).date(),
        conversation_id=conversation_id,
        turn_number=turn_number,
        session=" ".join(title.split()) or UNTITLED,
    )
    # An answer that only quotes the person's history was not searched either.
    sides = [Segment(said, before=USER_LABEL), Segment("" if is_recall else answered, before=ASSISTANT_LABEL)]
    return FoundText(reference=reference, segments=sides, only_matching=True)


def _related(scope: Scope, asked: HistoryQuestion) -> list[Found]:
    """The texts that share terms with the query, and those that are near it in meaning.

    The engine gives the nearest texts however far they are. Here that would be the end of "no matching results": what
    shares no term with the query and is farther than the model's `Calibration.far` is left out.
    """
    found = by_terms_and_meaning(
        scope, query=asked.query[:SEARCHED_LENGTH], vector=asked.vector, embedder=asked.embedder
    )
    return [
        each._replace(relevance=each.relevance or _faint(each))
        for each in found.texts
        if _is_related(each, found.calibration)
    ]


def _is_related(found: Found, calibration: Calibration) -> bool:
    near = found.distance is not None and found.distance <= calibration.far
    return near or found.shares_terms


def _faint(found: Found) -> float:
    return FAINT * max(0.0, 1 - found.distance) if found.distance is not None else 0.0
