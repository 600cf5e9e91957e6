"""The sources of `search_history`: notes and messages, which use the search by terms and meaning, sessions, and files.

Each source finds hits by its own measure, and reads the texts of the best hits. `MEMORIES` are notes: MEMORY.md,
the daily logs and the typed records. `MESSAGES` are turns that are similar to the query, in terms or meaning, and turns
that contain it literally. `SESSIONS` are conversations. `ATTACHMENTS` are parts of files.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar
from uuid import UUID

from django.db import connection
from django.db.models import Case, Count, F, OuterRef, Q, Subquery, When
from django.db.models.functions import Left

from core.ids import time_of_id
from core.text import ELLIPSIS, first_line, gettext_noop, shortened
from intake.models import Attachment, AttachmentText, Conversation, Turn, User
from intake.models.conversations import OPEN, with_pairs
from memory.chunking import HEADING_JOINT, PassageSpan
from memory.index.sources import ONLY_CHUNK, Text, document_entry, headings_of, record_entry
from memory.index.terms import ENGLISH, configurations, language_of, searchable
from memory.index.vectors import Meaning, nearest_passages
from memory.models import Corpus, MemoryDocument, MemoryRecord
from memory.models.documents import HIDDEN_SOURCES, Hit, Key, Scope
from memory.search.deadline import OutOfTime
from memory.search.echoes import ECHO, repeats
from memory.search.excerpts import EXCERPT_LENGTH, Segment
from memory.search.hybrid import NOT_KNOWN, RELATED, Found, find_related, is_near, is_nearest_only
from memory.search.literal import FEW, LITERAL, LiteralHits, Narrowing, find_literal, with_literal
from memory.search.query import Query
from memory.search.texts import SEARCHED_LENGTH, passage_in, read_turns

T = TypeVar("T")

WRITTEN_DOWN = (Corpus.MEMORY, Corpus.DAILY_LOG, Corpus.RECORD)
# A text without any of the query's terms is a result if it is at least this likely, or near in meaning. A question in
# another language than English shares no terms with what was said in English, and is farther from it.
LIKELY, LIKELY_ABROAD = 0.03, RELATED
UNTITLED = "Untitled"


class HistoryScope(StrEnum):
    ALL = "all"
    MEMORY = "memory"
    DAILY_LOG = "daily_log"
    SESSIONS = "sessions"
    # Of the search page alone: the tool has the scopes of the contract.
    NOTES = "notes"
    FILES = "files"


class Kind(StrEnum):
    """The kinds of result, in the contract's words."""

    MEMORY = "memory"
    DAILY_LOG = "daily_log"
    MESSAGE = "message"
    SESSION = "session"
    ATTACHMENT = "attachment"


CORPORA_IN: dict[HistoryScope, tuple[Corpus, ...]] = {
    HistoryScope.ALL: (*WRITTEN_DOWN, Corpus.CHAT),
    HistoryScope.MEMORY: WRITTEN_DOWN,
    HistoryScope.DAILY_LOG: (Corpus.DAILY_LOG,),
    HistoryScope.SESSIONS: (Corpus.CHAT,),
    HistoryScope.NOTES: (Corpus.MEMORY, Corpus.RECORD),
    HistoryScope.FILES: (Corpus.ATTACHMENT,),
}


@dataclass(frozen=True, kw_only=True)
class HistoryQuestion:
    """A request in the form for every source: the query, the user's texts and days, the query's meaning.

    `everywhere`: the scope before the days that the query names. `wants_everything`: it names only a time, so
    everything of that time is relevant. Sources share the scans; one that ran out of time is not repeated for the
    next source.
    """

    parsed: Query
    scope: Scope
    everywhere: Scope
    meaning: Meaning
    wants_everything: bool = False

    @property
    def query(self) -> str:
        """The words of the query, without its operators."""
        return self.parsed.text

    @property
    def exact(self) -> Sequence[str]:
        """The pieces that are marked in a text as they stand: its quotations, or the query as it was sent."""
        literal = self._done.get("literal")
        is_sent = isinstance(literal, LiteralHits) and literal.as_sent
        return (self.parsed.sent,) if is_sent else self.parsed.quotations

    @property
    def user(self) -> User:
        return self.scope.user

    @cached_property
    def related(self) -> list[Hit]:
        """The texts of every kind in scope that share terms with the query or are near it in meaning, in one ranking.

        The engine returns the nearest texts, however distant. Here texts that share no term with the query are left out
        if they are unlikely and farther than the model's `Calibration.far`; otherwise there would never be "no matching
        results". Where no text has a quotation, the nearest are offered, however distant.
        """
        found = self._found
        likely = least_likely(self.query)
        return [
            hit
            for hit in found.hits
            if self.wants_everything
            or found.lacks_quotation
            or hit.shares_terms
            or hit.key in self.literal.hits
            or hit.relevance >= likely
            or is_near(hit, found.calibration)
        ]

    @cached_property
    def of_files(self) -> "HistoryQuestion":
        """The same question, asked of the user's files."""
        if self.scope.corpora == (Corpus.ATTACHMENT,):
            return self
        of_files = (Corpus.ATTACHMENT,)
        return replace(
            self, scope=replace(self.scope, corpora=of_files), everywhere=replace(self.everywhere, corpora=of_files)
        )

    @property
    def has_nothing_near(self) -> bool:
        """Whether no text is near the query, so that results are only the nearest unless they are relevant."""
        return not self.wants_everything and is_nearest_only(self._found.hits, self._found.calibration)

    def is_far(self, hit: Hit) -> bool:
        """Whether its meaning is beyond the model's `Calibration.near`; False if that is not known."""
        return hit.distance is not None and hit.distance > self.found.calibration.near

    @property
    def is_cut(self) -> bool:
        """Whether more texts than those that were found may be relevant, or the time was up."""
        found, literal = self.found, self._done.get("literal")
        if found is NOT_KNOWN or not isinstance(literal, LiteralHits):
            return True
        # If every one of so many texts is relevant, there may be others behind the last.
        is_near_to_the_last = len(self.related) == len(found.hits) >= 50
        return found.is_cut or is_near_to_the_last or any(len(each) >= LITERAL for each in literal.lists)

    @property
    def found(self) -> Found:
        """What both retrievers found, if they were asked and their time was not up."""
        found = self._done.get("found")
        return found if isinstance(found, Found) else NOT_KNOWN

    @property
    def _found(self) -> Found:
        return self._once(
            "found",
            lambda: find_related(
                self.scope,
                query=self.parsed.about(self.query[:SEARCHED_LENGTH]),
                meaning=self.meaning,
                literal=self.literal if self.parsed.narrows else LiteralHits(),
            ),
        )

    @property
    def literal(self) -> LiteralHits:
        """The texts of every kind in scope that contain the whole query literally, or its exact pieces."""
        return self._once("literal", lambda: find_literal(self.scope, self.parsed, everywhere=self.everywhere))

    @property
    def answering(self) -> LiteralHits:
        """The same without questions that were asked before."""
        return self.literal.without({hit.key for hit in self.found.hits if hit.is_echo})

    @property
    def literal_in_time(self) -> LiteralHits | None:
        """The same; None if an earlier source has spent its time on them."""
        return None if isinstance(self._done.get("literal"), OutOfTime) else self.answering

    @cached_property
    def hits(self) -> list[Hit]:
        """The texts that are related or contain the query, in no order, each with its relevance."""
        related = {hit.key: hit.relevance for hit in self.related}
        # Only now it is known which of them are echoes.
        answering = self.answering
        found = self.related + answering.beside(related, self.parsed)
        relevances = with_literal(related, [hit.key for hit in found if hit.key in answering.hits])
        return [
            hit._replace(
                relevance=relevances[hit.key],
                is_exact=hit.key in answering.exact,
                shares_terms=hit.shares_terms or hit.key in self.literal.hits,
            )
            for hit in found
        ]

    def nearest_passages(self, keys: Collection[Key]) -> dict[Key, PassageSpan]:
        """For each of these texts, the passage that is nearest to the query in meaning."""
        return nearest_passages(self.scope, self.meaning, keys)

    @cached_property
    def _done(self) -> dict[str, Any]:
        return {}

    def _once(self, name: str, work: Callable[[], T]) -> T:
        """The result of the first call; raises `OutOfTime` at once if the first call ran out of time."""
        if name not in self._done:
            # Replaced unless the work is stopped by its deadline, by whatever exception that arrives here.
            self._done[name] = OutOfTime()
            self._done[name] = work()
        done: T | OutOfTime = self._done[name]
        if isinstance(done, OutOfTime):
            raise done
        return done


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The origin of a result. `day` is in the user's time zone; `session` is the title of the conversation."""

    kind: Kind
    day: date
    conversation_id: UUID | None = None
    turn_number: int | None = None
    session: str | None = None
    # That of the conversation, the record or the document; empty for none.
    project: str = ""
    document_id: UUID | None = None
    # Of a document that is no log: MEMORY.md, the page about the person, or a note's title.
    document: str | None = None
    is_note: bool = False
    record_id: UUID | None = None
    # Of a record: the one that replaces it, since when, its last day, and what it is called.
    replaced_by: UUID | None = None
    replaced_on: date | None = None
    valid_until: date | None = None
    first_line: str = ""
    # Of a file: its name, its attachment, the number of the part, and the place of that, such as "page 3".
    file: str | None = None
    # Of a page of the web that was read.
    address: str = ""
    attachment_id: UUID | None = None
    part: int | None = None
    place: str | None = None


HitText = tuple[Reference, list[Segment]]
"""The text of a hit, and its origin."""


def least_likely(query: str) -> float:
    """The relevance from which a text is a result that shares no term with the query and is not near it in meaning."""
    # English, as its function words or its letters tell.
    is_english = language_of(query) == ENGLISH and not any(each.isalpha() and not each.isascii() for each in query)
    return LIKELY if is_english else LIKELY_ABROAD


@dataclass(slots=True)
class HistorySource:
    """How one source is searched: `find` returns rows of the caller only, in no order; `read` leaves out the texts that
    were deleted meanwhile.
    """

    name: str
    """As in `settings.HISTORY_WEIGHTS`, and in the note that says that it was not searched to the end."""
    find: Callable[[HistoryQuestion], list[Hit]]
    read: Callable[[Sequence[Key], HistoryQuestion], Mapping[Key, HitText]]
    is_searched: Callable[[HistoryQuestion], bool] = lambda asked: True
    """Whether it can have anything."""


def _read_notes(keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, HitText]:
    ids, passages = {id_ for id_, _ in keys}, asked.nearest_passages(keys)
    texts = _documents(ids, asked) | _records(ids, asked)
    found: dict[Key, HitText] = {}
    for key in (key for key in texts if key in keys):
        (reference, text), passage = texts[key], passages.get(key)
        # A short text is shown whole, with its headings; a longer one around the passage, after its two innermost ones.
        headings = "" if passage is None or len(text.said) <= EXCERPT_LENGTH else headings_of(text, passage)
        shown = HEADING_JOINT.join(headings.split(HEADING_JOINT)[-2:])
        found[key] = reference, [Segment(text.said, passage=passage_in(text.said, passage), headings=shown)]
    return found


def _documents(ids: set[UUID], asked: HistoryQuestion) -> dict[Key, tuple[Reference, Text]]:
    documents = MemoryDocument.objects.for_user(asked.user).filter(pk__in=ids).select_related("user")
    found: dict[Key, tuple[Reference, Text]] = {}
    for document in documents:
        reference = document_reference(document, asked.user.local_time(document.updated_at).date())
        found |= {(document.pk, text.key.chunk_index): (reference, text) for text in document_entry(document).texts}
    return found


def document_reference(document: MemoryDocument, day: date) -> Reference:
    """`day`: that of its last change; a log has its own."""
    if document.date is not None:
        return Reference(kind=Kind.DAILY_LOG, day=document.date, document_id=document.pk, project=document.project)
    is_note = document.kind == MemoryDocument.Kind.NOTE
    return Reference(
        kind=Kind.MEMORY,
        day=day,
        document_id=document.pk,
        document=document.title or UNTITLED if is_note else str(document.get_kind_display()),
        is_note=is_note,
        project=document.project,
    )


def _records(ids: set[UUID], asked: HistoryQuestion) -> dict[Key, tuple[Reference, Text]]:
    found = {}
    for record in MemoryRecord.objects.for_user(asked.user).with_replacement(asked.user).filter(pk__in=ids):
        day = asked.user.local_time(record.created_at).date()
        reference = Reference(
            kind=Kind.MEMORY,
            day=day,
            record_id=record.pk,
            project=record.project_id,
            replaced_by=record.replaced_by,
            replaced_on=record.replaced_on,
            valid_until=record.valid_until,
            first_line=first_line(record.content),
        )
        found[record.pk, ONLY_CHUNK] = reference, record_entry(record).texts[0]
    return found


def _read_messages(keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, HitText]:
    # The piece of a text that is shown first: a quotation, or the whole query.
    sought = next(iter(asked.exact), asked.query)
    turns = read_turns(asked.user, keys, query=sought, passages=asked.nearest_passages(keys))
    # Of the user's message and the answer.
    sides = {None: slice(2), "me": slice(0, 1), "assistant": slice(1, 2)}[asked.parsed.speaker]
    return {
        key: (
            Reference(
                kind=Kind.MESSAGE,
                day=asked.user.local_time(at).date(),
                conversation_id=key[0],
                turn_number=key[1],
                session=" ".join(title.split()) or UNTITLED,
            ),
            segments[sides],
        )
        for key, at, title, segments in turns
    }


def _read_files(keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, HitText]:
    passages = asked.of_files.nearest_passages(keys)
    ids = {id_ for id_, _ in keys}
    files = {file.pk: file for file in Attachment.objects.for_user(asked.user).filter(pk__in=ids)}
    chats = Conversation.objects.for_user(asked.user).filter(pk__in={f.conversation_id for f in files.values()})
    titles = dict(chats.values_list("pk", "title"))
    parts = AttachmentText.objects.for_user(asked.user).filter(with_pairs("attachment_id", "number", keys))
    found: dict[Key, HitText] = {}
    for part in (part for part in parts if part.attachment_id in files):
        file, key = files[part.attachment_id], (part.attachment_id, part.number)
        title = titles.get(file.conversation_id, "") if file.conversation_id else ""
        reference = Reference(
            kind=Kind.ATTACHMENT,
            day=asked.user.local_time(time_of_id(file.pk)).date(),
            conversation_id=file.conversation_id,
            turn_number=file.turn_number,
            session=" ".join(title.split()) or UNTITLED,
            file=file.title,
            address=file.address,
            attachment_id=file.pk,
            part=part.number,
            place=part.place or None,
        )
        found[key] = reference, [Segment(part.text, passage=passage_in(part.text, passages.get(key)))]
    return found


# The score of a session, out of 3: 1 if the title contains the query, plus the share of its words in the title, plus
# half of both for the last message. A title says what a conversation is about; its last message only where it ended.

# Limits for users with very many conversations, the newest first: the titles that are searched, the last messages (each
# of which needs a turn), and the candidates that are scored.
TITLES = 20_000
PREVIEWS = 1_000
BEST = 100
PREVIEW_LENGTH = 200

_PREVIEW = """
left(CASE WHEN is_recall OR assistant_message = '' THEN user_message ELSE assistant_message END, %(preview_length)s)
"""
_TURNS = """
intake_conversation_turns WHERE conversation_id = newest.id AND user_id = %(user_id)s AND status <> 'streaming'
"""
# A conversation is a candidate only if it contains the beginning of a word of the query, up to where inflection begins.
# Parsing is expensive, so only candidates are parsed. `strpos` has no special characters.
_FIND = """
WITH term AS MATERIALIZED (
    SELECT lexeme, left(lexeme, greatest(3, length(lexeme) - 1)) AS beginning
      FROM unnest(to_tsvector(%(configuration)s::regconfig, %(query)s))
), asked AS MATERIALIZED (
    SELECT lower(%(piece)s) AS piece, array(SELECT lexeme FROM term) AS lexemes,
           greatest(1, (SELECT count(*) FROM term))::float8 AS words
), mine AS MATERIALIZED (
    SELECT id, lower(title) AS title, last_active_at, turn_count
      FROM intake_conversations
     WHERE user_id = %(user_id)s AND expires_at IS NULL AND last_active_at >= %(since)s AND last_active_at < %(until)s
       AND (%(only)s::uuid[] IS NULL OR id = ANY(%(only)s::uuid[])) AND id NOT IN ({hidden})
     ORDER BY last_active_at DESC, id DESC
     LIMIT %(titles)s
), previewed AS MATERIALIZED (
    -- The last message is the last turn's, by its number; only where that is gone or still streaming it is looked for.
    SELECT id, lower(coalesce((SELECT {preview} FROM {turns} AND turn_number = turn_count),
                              (SELECT {preview} FROM {turns} ORDER BY turn_number DESC LIMIT 1))) AS preview
      FROM (SELECT id, turn_count FROM mine ORDER BY last_active_at DESC, id DESC LIMIT %(previews)s) AS newest
), possible AS MATERIALIZED (
    SELECT id, last_active_at, title, coalesce(preview, '') AS preview
      FROM mine
      LEFT JOIN previewed USING (id)
     CROSS JOIN asked
     WHERE (piece <> '' AND (strpos(title, piece) > 0 OR strpos(preview, piece) > 0))
        OR EXISTS (SELECT FROM term WHERE strpos(title, beginning) > 0 OR strpos(preview, beginning) > 0)
     ORDER BY last_active_at DESC, id DESC
     LIMIT %(weighed)s
), weighed AS (
    SELECT id, last_active_at, title,
           (piece <> '' AND strpos(title, piece) > 0)::int
           + (piece <> '' AND strpos(preview, piece) > 0)::int / 2.0
           + (SELECT count(*) FROM unnest(to_tsvector(%(configuration)s::regconfig, title))
               WHERE lexeme = ANY(lexemes)) / words
           + (SELECT count(*) FROM unnest(to_tsvector(%(configuration)s::regconfig, preview))
               WHERE lexeme = ANY(lexemes)) / words / 2 AS raw
      FROM possible
     CROSS JOIN asked
)
SELECT id, raw, last_active_at, title
  FROM weighed
 WHERE raw > 0
 ORDER BY raw DESC, last_active_at DESC, id
 LIMIT %(best)s
"""


def _find_sessions(asked: HistoryQuestion) -> list[Hit]:
    rows = _fitting(_rows_like(asked.query, asked.scope), asked)
    if asked.parsed.sent != asked.query or asked.scope != asked.everywhere:
        known = {row[0] for row in rows}
        as_sent = _rows_like(asked.parsed.sent, asked.everywhere, has_it_whole=True)
        rows += [row for row in as_sent if row[0] not in known]
    # With 2, the title has the query.
    titled = [id_ for id_, raw, _ in rows if raw >= 2.0]
    literal = asked.literal_in_time
    is_rare = literal is not None and len(titled) + len(literal.hits) <= FEW
    return [
        Hit(
            (id_, 0),
            Corpus.CHAT,
            at,
            source=SESSIONS.name,
            # A few of the query's words count less than their share: one of five, in a last message, is chance. 3 is
            # the highest: the query is in the title and in the last message.
            relevance=raw * min(1.0, raw) / 3.0,
            shares_terms=True,
            is_exact=id_ in titled and is_rare,
        )
        for id_, raw, at in rows
    ]


def _rows_like(query: str, scope: Scope, *, has_it_whole: bool = False) -> list[tuple[UUID, float, datetime]]:
    """The best conversations by the query's words, each with its measure; `has_it_whole`: only those with all of it."""
    piece = " ".join(query.split())
    with connection.cursor() as cursor:
        cursor.execute(
            _FIND.format(preview=_PREVIEW, turns=_TURNS, hidden=HIDDEN_SOURCES),
            {
                **scope.parameters(),
                "configuration": configurations()[0],
                "query": "" if has_it_whole else searchable(query),
                # No title and no preview is longer.
                "piece": piece if len(piece) <= 200 else "",
                "titles": TITLES,
                "previews": PREVIEWS,
                "preview_length": PREVIEW_LENGTH,
                "weighed": 1_000,
                "best": BEST,
            },
        )
        return [
            # A question that gave a chat its title is no answer either.
            (id_, float(raw) * (ECHO if repeats(query, title) else 1.0), at)
            for id_, raw, at, title in cursor.fetchall()
        ]


def _read_sessions(keys: Sequence[Key], asked: HistoryQuestion) -> Mapping[Key, HitText]:
    """A conversation without any answer is the one that asks."""
    found: dict[Key, HitText] = {}
    for id_, title, last_active_at, preview, messages in _rows([id_ for id_, _ in keys], asked):
        if preview is None and messages:
            continue
        day = asked.user.local_time(last_active_at).date()
        named = " ".join(title.split()) or UNTITLED
        count = f"{messages or 0} {'message' if messages == 1 else 'messages'}"
        # One line; a word that was cut off in the middle is removed.
        words = " ".join((preview or "").split())
        if len(preview or "") >= PREVIEW_LENGTH:
            words = shortened(words + ELLIPSIS, len(words))
        found[id_, 0] = (
            Reference(kind=Kind.SESSION, day=day, conversation_id=id_, session=named),
            [
                Segment(named, before='Session: "', after=f'" ({count}, last active: {day})'),
                Segment(words, before="Preview: "),
            ],
        )
    return found


def _fitting(rows: list[tuple[UUID, float, datetime]], asked: HistoryQuestion) -> list[tuple[UUID, float, datetime]]:
    """Those whose title or preview fulfils the query's operators. They have no speaker and no code."""
    parsed = asked.parsed
    if parsed.speaker or parsed.has_code:
        return []
    if not parsed.narrows:
        return rows
    narrowing = Narrowing.of(asked.scope, parsed)
    texts = {id_: f"{title}\n{preview or ''}" for id_, title, _, preview, _ in _rows([row[0] for row in rows], asked)}
    return [row for row in rows if narrowing.is_in_chat(row[0]) and narrowing.fits(texts.get(row[0], ""))]


def _rows(ids: Sequence[UUID], asked: HistoryQuestion) -> Iterable[tuple[UUID, str, datetime, str | None, int | None]]:
    """For each its id, title and last time, its preview and its number of messages; None without a turn."""
    turns = Turn.objects.for_user(asked.user).filter(conversation=OuterRef("pk"))
    last = turns.exclude(status__in=OPEN).order_by("-turn_number")
    has_answer = ~Q(assistant_message="")
    message = Case(
        When(has_answer & Q(is_recall=False), then=F("assistant_message")),
        default=F("user_message"),
    )
    count = turns.order_by().values("conversation").annotate(n=Count("*") + Count("pk", filter=has_answer))
    conversations = Conversation.objects.for_user(asked.user).annotate(
        preview=Subquery(last.values(beginning=Left(message, PREVIEW_LENGTH))[:1]),
        messages=Subquery(count.values("n")),
    )
    return conversations.filter(pk__in=ids).values_list("pk", "title", "last_active_at", "preview", "messages")


MEMORIES = HistorySource(
    gettext_noop("memory"),
    lambda asked: [hit._replace(source="memory") for hit in asked.hits if hit.corpus != Corpus.CHAT],
    _read_notes,
)
MESSAGES = HistorySource(
    "messages",
    lambda asked: [hit._replace(source="messages") for hit in asked.hits if hit.corpus == Corpus.CHAT],
    _read_messages,
)
SESSIONS = HistorySource("sessions", _find_sessions, _read_sessions)
# The parts of files are ranked among themselves.
ATTACHMENTS = HistorySource(
    "attachments",
    lambda asked: [hit._replace(source="attachments") for hit in asked.of_files.hits],
    _read_files,
    # Apart: a file of a thousand parts must neither take the places of what was said nor change how rare its words are.
    lambda asked: asked.found.has_files,
)
