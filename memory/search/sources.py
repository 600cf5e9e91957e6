"""The sources of `search_history`: their interface, and the two that use the search by terms and meaning.

Each source finds hits by its own measure, and reads the texts of the best candidates. `Memories` are notes: MEMORY.md,
the daily logs and the typed records. `Messages` are turns that are similar to the query, in terms or meaning, and turns
that contain it literally. `memory.search.sessions` is the third source.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from functools import cached_property
from typing import ClassVar
from uuid import UUID
from zoneinfo import ZoneInfo

from intake.models import Turn, User, local_time
from memory.chunking import PassageSpan
from memory.embedders import Calibration, Embedder
from memory.embedders.base import Vector
from memory.models import Corpus, MemoryDocument, MemoryRecord
from memory.models.corpora import Key, Scope
from memory.search.chat_history import (
    LITERAL,
    Found,
    FoundTexts,
    by_terms_and_meaning,
    exact_pieces,
    is_nearest_only,
    nearest_passages,
)
from memory.search.excerpts import Segment
from memory.search.texts import SEARCHED_LENGTH, TurnText, passage_in, read_turns
from memory.sources import ONLY_CHUNK, document_entry
from memory.trigrams import containing

WRITTEN_DOWN = (Corpus.MEMORY, Corpus.DAILY_LOG, Corpus.RECORD)
# The score of a text that contains the query literally, if no text is similar to it.
LITERAL_ALONE = 0.5
# The whole query is an exact piece, like a name, if at most this many texts contain it; otherwise it is a common word.
FEW = 3
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


CORPORA_IN: dict[HistoryScope, tuple[Corpus, ...]] = {
    HistoryScope.ALL: (*WRITTEN_DOWN, Corpus.CHAT),
    HistoryScope.MEMORY: WRITTEN_DOWN,
    HistoryScope.DAILY_LOG: (Corpus.DAILY_LOG,),
    HistoryScope.SESSIONS: (Corpus.CHAT,),
}


@dataclass(frozen=True, kw_only=True)
class HistoryQuestion:
    """A request in the form for every source: the user, the query, its vector and the model, and the time.

    `wants_everything`: it names only a time, so everything of that time is relevant.
    """

    user: User
    query: str
    scope: HistoryScope
    period: Period
    zone: ZoneInfo
    vector: Vector
    embedder: Embedder
    wants_everything: bool = False

    @cached_property
    def related(self) -> list[Found]:
        """The texts of every kind in scope that share terms with the query or are near it in meaning, in one ranking.

        The engine returns the nearest texts, however distant. Here texts that share no term with the query and are
        farther than the model's `Calibration.far` are left out; otherwise there would never be "no matching results".
        """
        found = self._found
        return [each for each in found.texts if self.wants_everything or _is_related(each, found.calibration)]

    @property
    def has_nothing_near(self) -> bool:
        """Whether no text is near the query, so that results are only the nearest unless they are relevant."""
        return not self.wants_everything and is_nearest_only(self._found.texts, self._found.calibration)

    @cached_property
    def _found(self) -> FoundTexts:
        return by_terms_and_meaning(
            Scope(self.user, CORPORA_IN[self.scope], self.period.since, self.period.until),
            query=self.query[:SEARCHED_LENGTH],
            vector=self.vector,
            embedder=self.embedder,
        )

    @cached_property
    def relevances(self) -> dict[Key, float]:
        """For every related text, and every turn with the literal query."""
        return with_literal({each.key: each.relevance for each in self.related}, self.literal)

    @property
    def literal(self) -> set[Key]:
        """The texts that contain the whole query literally, or its exact pieces."""
        return self._having[0].union(self.exact)

    @cached_property
    def exact(self) -> set[Key]:
        """The texts with an exact piece: quoted text, an identifier, or the whole query if few contain it."""
        whole, *pieces = self._having
        return set().union(*pieces, whole if len(whole) <= FEW else ())

    def nearest_passages(self, keys: Collection[Key]) -> dict[Key, PassageSpan]:
        """For each of these texts, the passage that is nearest to the query in meaning."""
        return nearest_passages(Scope(self.user, CORPORA_IN[self.scope]), self.vector, self.embedder, keys)

    @cached_property
    def _having(self) -> list[set[Key]]:
        """By piece, the whole query first: the texts of every kind in scope that contain it, in any case."""
        pieces = [self.query, *(piece for piece in exact_pieces(self.query) if piece != self.query)]
        corpora = CORPORA_IN[self.scope]
        chats = Scope(self.user, (Corpus.CHAT,), self.period.since, self.period.until)
        return [
            (set(containing(chats, text=piece, limit=LITERAL)) if Corpus.CHAT in corpora else set())
            | (_written_with(piece, self) if set(WRITTEN_DOWN) & set(corpora) else set())
            for piece in pieces
        ]


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that a source found. `relevance`: 0 to 1, on one scale for all sources.

    `is_exact`: it contains an exact piece. `has_only`: it is the only text with one of the query's terms.
    `shares_terms`: it contains at least one of them, or the query itself; otherwise only its meaning found it.
    """

    source: str
    key: Key
    relevance: float
    at: datetime
    is_exact: bool = False
    has_only: bool = False
    shares_terms: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The origin of a result. `day` is in the user's time zone; `session` is the title of the conversation."""

    kind: Kind
    day: date
    conversation_id: UUID | None = None
    turn_number: int | None = None
    session: str | None = None
    document_id: UUID | None = None
    # Of a document that is no log: MEMORY.md, the page about the person, or a note's title.
    document: str | None = None
    is_note: bool = False
    record_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundText:
    """The text of a hit; for some hits, only the matching segments."""

    reference: Reference
    segments: Sequence[Segment]
    only_matching: bool = False


class HistorySource(ABC):
    name: ClassVar[str]
    """As in `settings.HISTORY_WEIGHTS`, and in the note that says that it was not searched to the end."""

    @abstractmethod
    def find(self, asked: HistoryQuestion) -> list[Hit]:
        """Rows of the caller only, in no order."""

    @abstractmethod
    def read(self, keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, FoundText]:
        """Without texts that were deleted meanwhile."""


class Memories(HistorySource):
    name = "memory"

    def find(self, asked: HistoryQuestion) -> list[Hit]:
        """See HistorySource."""
        return [_hit(self.name, each, asked) for each in asked.related if each.text.corpus != Corpus.CHAT]

    def read(self, keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, FoundText]:
        """See HistorySource."""
        ids, passages = {id_ for id_, _ in keys}, asked.nearest_passages(keys)
        texts = _documents(ids, asked) | _records(ids, asked)
        return {key: _at_passage(text, passages.get(key)) for key, text in texts.items() if key in keys}


def _at_passage(text: FoundText, span: PassageSpan | None) -> FoundText:
    (segment,) = text.segments
    return replace(text, segments=[replace(segment, passage=passage_in(segment.text, span))])


def _written_with(piece: str, asked: HistoryQuestion) -> set[Key]:
    """The chunks and records that contain a piece of text, in any case."""
    piece = piece[:SEARCHED_LENGTH]
    documents = MemoryDocument.objects.for_user(asked.user).filter(content__icontains=piece).select_related("user")
    records = MemoryRecord.objects.for_user(asked.user).filter(content__icontains=piece)[:LITERAL]
    return {(pk, ONLY_CHUNK) for pk in records.values_list("pk", flat=True)} | {
        (document.pk, text.key.chunk_index)
        for document in documents[:LITERAL]
        for text in document_entry(document).texts
        if piece.casefold() in text.said.casefold()
    }


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
    day = local_time(document.updated_at, asked.zone).date()
    is_note = document.kind == MemoryDocument.Kind.NOTE
    name = document.title or UNTITLED if is_note else str(document.get_kind_display())
    return Reference(kind=Kind.MEMORY, day=day, document_id=document.pk, document=name, is_note=is_note)


def _records(ids: set[UUID], asked: HistoryQuestion) -> dict[Key, FoundText]:
    records = MemoryRecord.objects.for_user(asked.user).filter(pk__in=ids)
    return {(record.pk, ONLY_CHUNK): _record_text(record, asked) for record in records}


def _record_text(record: MemoryRecord, asked: HistoryQuestion) -> FoundText:
    day = local_time(record.created_at, asked.zone).date()
    reference = Reference(kind=Kind.MEMORY, day=day, record_id=record.pk)
    return FoundText(reference=reference, segments=[Segment(record.content)])


class Messages(HistorySource):
    name = "messages"

    def find(self, asked: HistoryQuestion) -> list[Hit]:
        """See HistorySource."""
        chats = [_hit(self.name, each, asked) for each in asked.related if each.text.corpus == Corpus.CHAT]
        times = _times(list(asked.literal - {each.key for each in asked.related}), asked)
        return chats + [
            Hit(self.name, key, asked.relevances[key], at, is_exact=key in asked.exact) for key, at in times.items()
        ]

    def read(self, keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, FoundText]:
        """See HistorySource."""
        turns = read_turns(asked.user, keys, query=asked.query, passages=asked.nearest_passages(keys))
        return {turn.key: _turn_text(turn, asked.zone) for turn in turns}


def _hit(source: str, found: Found, asked: HistoryQuestion) -> Hit:
    key = found.key
    shares_terms = found.shares_terms or key in asked.literal
    return Hit(source, key, asked.relevances[key], found.said_at, key in asked.exact, found.has_only, shares_terms)


def with_literal(relevances: Mapping[Key, float], literal: Collection[Key]) -> dict[Key, float]:
    """The relevance of every text that either way found, 0 to 1.

    A literal match counts as much again as the best text without one. So among texts of the same age no merely similar
    one is above a literal match, and the engine orders the literal matches. A literal match that the engine does not
    find (half a word, a piece of code) has only that value.
    """
    having = set(literal)
    merely_alike = {key: relevance for key, relevance in relevances.items() if key not in having}
    worth = max(merely_alike.values(), default=0.0) or LITERAL_ALONE
    return merely_alike | {key: 1 - (1 - relevances.get(key, 0.0)) * (1 - worth) for key in having}


def _times(keys: Sequence[Key], asked: HistoryQuestion) -> dict[Key, datetime]:
    turns = Turn.objects.for_user(asked.user).with_keys(keys)
    return {(row[0], row[1]): row[2] for row in turns.values_list("conversation_id", "turn_number", "said_at")}


def _turn_text(turn: TurnText, zone: ZoneInfo) -> FoundText:
    reference = Reference(
        kind=Kind.MESSAGE,
        day=local_time(turn.said_at, zone).date(),
        conversation_id=turn.conversation_id,
        turn_number=turn.turn_number,
        session=" ".join(turn.title.split()) or UNTITLED,
    )
    return FoundText(reference=reference, segments=turn.segments, only_matching=True)


def _is_related(found: Found, calibration: Calibration) -> bool:
    near = found.distance is not None and found.distance <= calibration.far
    return near or found.shares_terms
