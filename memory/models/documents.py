"""Documents, records, the corpora of the index, the scope of a search, and its hits.

The texts that users or their agents save: MEMORY.md, daily logs, and records.
"""

import re
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal, NamedTuple, Self, TypeVar
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import connection, models
from django.db.models import OuterRef, Q, Subquery
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce, TruncDate
from django.utils import timezone
from pgvector.django import HalfVectorField

from core.ids import uuid7
from core.text import LONGEST_PROJECT
from intake.models import Project, User
from intake.models.conversations import OwnedQuerySet
from intake.models.users import owner

Key = tuple[UUID, int]
"""How a text is named: by its source and its place in it, for chat the conversation and the turn number, for a file the
attachment and the number of the part.
"""


class Corpus(models.TextChoices):
    CHAT = "chat"
    MEMORY = "memory", "MEMORY.md"
    DAILY_LOG = "daily_log"
    RECORD = "record"
    ATTACHMENT = "attachment"


# The records that no longer hold: replaced by another that holds already, or past their last day. Every search, list
# and home page leaves out these and no others.
PAST_RECORDS = """
SELECT replaces
  FROM memory_records
 WHERE user_id = %(user_id)s AND replaces IS NOT NULL AND (valid_from IS NULL OR valid_from <= %(today)s)
 UNION ALL
SELECT id FROM memory_records WHERE user_id = %(user_id)s AND valid_until < %(today)s
"""
# The chats, files, records and documents of closed projects: only what looks inside such a project finds them.
_CLOSED = "ARRAY(SELECT name::text FROM intake_projects WHERE user_id = %(user_id)s AND is_closed)"
_CLOSED_CHATS = f"""
SELECT id FROM intake_conversations WHERE user_id = %(user_id)s AND project <> '' AND project = ANY({_CLOSED})
"""  # noqa: S608 - only constants of ours
CLOSED_SOURCES = f"""
{_CLOSED_CHATS}
 UNION ALL
SELECT id FROM attachments WHERE user_id = %(user_id)s AND conversation_id = ANY(ARRAY({_CLOSED_CHATS}))
 UNION ALL
SELECT id FROM memory_records WHERE user_id = %(user_id)s AND project_id <> '' AND project_id = ANY({_CLOSED})
 UNION ALL
SELECT id FROM memory_documents WHERE user_id = %(user_id)s AND project <> '' AND project = ANY({_CLOSED})
"""  # noqa: S608 - only constants of ours
# The chats, records and documents of a project.
PROJECT_SOURCES = """
SELECT id FROM intake_conversations WHERE user_id = %(user_id)s AND project = %(project)s
 UNION ALL
SELECT id FROM memory_records WHERE user_id = %(user_id)s AND project_id = %(project)s
 UNION ALL
SELECT id FROM memory_documents WHERE user_id = %(user_id)s AND project = %(project)s
"""
# The sources that a search leaves out. As a subquery and not an array it is hashed, however many they are.
HIDDEN_SOURCES = f"""
SELECT unnest(%(hidden)s::uuid[])
 UNION ALL
SELECT past.id FROM ({PAST_RECORDS}) AS past(id) WHERE %(hides_past)s
 UNION ALL
SELECT closed.id FROM ({CLOSED_SOURCES}) AS closed(id) WHERE %(hides_closed)s
"""  # noqa: S608 - only constants of ours


def subquery(statement: str, **values: object) -> RawSQL:
    """A statement with named parameters, as a part of a query of Django's."""
    names = re.findall(r"%\((\w+)\)s", statement)
    return RawSQL(re.sub(r"%\(\w+\)s", "%s", statement), [values[name] for name in names])  # noqa: S611 - constants of ours


def past_records(user: User, *, today: date) -> RawSQL:
    return subquery(PAST_RECORDS, user_id=user.pk, today=today)


def closed_sources(user: User) -> RawSQL:
    return subquery(CLOSED_SOURCES, user_id=user.pk)


@dataclass(frozen=True, slots=True)
class Scope:
    """One user's texts of some corpora and a time: `since` is inclusive, `until` exclusive, None is open.

    `only`: the conversations, files, records and documents that are searched; None for all but the ones of closed
    projects. `hidden`: the ones that are not searched. `includes_replaced`: also the records in `PAST_RECORDS`.
    """

    user: User
    corpora: tuple[Corpus, ...]
    since: datetime | None = None
    until: datetime | None = None
    only: tuple[UUID, ...] | None = None
    hidden: tuple[UUID, ...] = ()
    includes_replaced: bool = False
    # What the scope, and those that are made of it, has read of the database.
    known: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_dated(self) -> bool:
        return self.since is not None or self.until is not None

    @property
    def today(self) -> date:
        return self.user.local_time(timezone.now()).date()

    @property
    def hides_past(self) -> bool:
        return Corpus.RECORD in self.corpora and not self.includes_replaced

    @property
    def hides_closed(self) -> bool:
        """Whether there are closed projects that the search must leave out, as of its first statement.

        Most people have none. Their condition in each statement would take a fifth of a semantic search.
        """
        if self.only is not None:
            return False
        if not self.known:
            closed = Project.objects.for_user(self.user).filter(is_closed=True)
            self.known["has_closed"] = closed.exists()
        return self.known["has_closed"]

    @property
    def hides_any(self) -> bool:
        """Whether `HIDDEN_SOURCES` can have any."""
        return bool(self.hidden) or self.hides_past or self.hides_closed

    def parameters(self) -> dict[str, Any]:
        """The named parameters of the statements on vectors and terms."""
        return {
            "user_id": self.user.pk,
            "corpora": list(self.corpora),
            "since": self.since or "-infinity",
            "until": self.until or "infinity",
            "only": None if self.only is None else list(self.only),
            "hidden": list(self.hidden),
            "hides_past": self.hides_past,
            "hides_closed": self.hides_closed,
            # A day is worked out only where one is asked for.
            "today": self.today if self.hides_past else date.max,
        }


class Hit(NamedTuple):
    """A text that a search found. Each step of the search fills in its own figures: the terms, the vectors, the fusion,
    then for `search_history` the source.

    `at` is the time of the text, `length` its number of terms. `lexical` is its score by the query's terms, and
    `user_lexical` and `assistant_lexical` the scores of each side alone; 0 without any of the terms. `distance` is the
    cosine distance of its nearest passage, and `user_distance` that of its first one, with the user's text; None
    without a vector. Of a note both are the same, and its length is that of its nearest passage, often one line.
    `relevance`, 0 to 1 and on one scale for all sources, is how likely it is the requested text. `score`, 0 to 1, also
    counts its source and age, and orders a list of all sources; `printed` is what that list says of it.

    `shares_terms`: it contains one of the query's terms, or the query itself; otherwise only its meaning found it.
    `has_only`: it is the user's only text with one of the query's terms. `is_exact`: it contains an exact piece.
    `is_echo`: its user only asked what the query asks, and its figures are those of the answer.
    `snippet`: the first words of a turn, None if they were not read; `project` that of its conversation. `later`: the
    turn in which its user says otherwise, and its time.
    """

    key: Key
    corpus: str
    at: datetime
    length: int = 0
    lexical: float = 0.0
    user_lexical: float = 0.0
    assistant_lexical: float = 0.0
    distance: float | None = None
    user_distance: float | None = None
    relevance: float = 0.0
    score: float = 0.0
    printed: float = 0.0
    source: str = ""
    shares_terms: bool = False
    has_only: bool = False
    is_exact: bool = False
    is_echo: bool = False
    snippet: str | None = None
    project: str = ""
    later: tuple[Key, datetime] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the index: one text's, or all of a source's if no chunk is named."""

    user_id: int
    corpus: Corpus
    source_id: UUID
    chunk_index: int | None = None


Row = TypeVar("Row", bound=models.Model)


class IndexQuerySet(OwnedQuerySet[Row]):
    """The rows of the index that describe texts."""

    def in_corpus(self, corpus: Corpus) -> Self:
        return self.filter(corpus=corpus)

    def at(self, place: Place) -> Self:
        rows = self.filter(user_id=place.user_id, corpus=place.corpus, source_id=place.source_id)
        return rows if place.chunk_index is None else rows.filter(chunk_index=place.chunk_index)


# Limits the cost of an append, which reads the whole text, and fits a request's body in any script.
MAX_DOCUMENT_LENGTH = 500_000
# As much as the passages of one text can hold, so that every part of a record has a vector.
MAX_RECORD_LENGTH = 32_000
MAX_NOTE_TITLE = 300
MAX_LABEL_LENGTH = 100
MAX_PROJECT_LENGTH = LONGEST_PROJECT
MAX_TAGS = 50


# The name of the page about the user, in place of a day.
ABOUT_ME: Literal["about"] = "about"
DocumentDay = date | Literal["about"] | None
"""The key of a document: the day of a log, `ABOUT_ME` for the page about the user, or None for MEMORY.md."""

# A last line without an end is ended first. A text that would be too long changes no row, which the caller sees.
_APPEND = r"""
INSERT INTO memory_documents AS document
       (id, user_id, kind, date, project, title, content, version, created_at, updated_at)
VALUES (%(id)s, %(user_id)s, %(kind)s, %(date)s, %(project)s, '', %(lines)s, 1, %(now)s, %(now)s)
    ON CONFLICT (user_id, kind, date, project) WHERE kind <> 'note' DO UPDATE
   SET content = rtrim(document.content, E'\n') || left(E'\n', char_length(document.content)) || excluded.content,
       version = document.version + 1, updated_at = excluded.updated_at
 WHERE char_length(document.content) + char_length(excluded.content) < %(max_length)s
"""


class MemoryDocumentQuerySet(OwnedQuerySet["MemoryDocument"]):
    def memory(self) -> Self:
        """A person's MEMORY.md, and those of their projects."""
        return self.filter(kind=MemoryDocument.Kind.MEMORY)

    def daily_logs(self) -> Self:
        return self.filter(kind=MemoryDocument.Kind.DAILY_LOG)

    def notes(self) -> Self:
        return self.filter(kind=MemoryDocument.Kind.NOTE)

    def on(self, day: DocumentDay, project: str = "") -> Self:
        """The log of that day; for None, MEMORY.md, which has no date. Without a project, the general one."""
        match day:
            case None:
                return self.memory().filter(project=project)
            case str():
                return self.filter(kind=MemoryDocument.Kind.ABOUT)
        return self.daily_logs().filter(date=day, project=project)

    def append(self, *, user: User, kind: str, day: date | None, project: str = "", lines: str, now: datetime) -> bool:
        """Append whole lines to a document, creating it if necessary, in one statement; False if it would be too long.

        Writers wait for each other at the row and then see the other's text, so none is overwritten.
        """
        if len(lines) > MAX_DOCUMENT_LENGTH:
            return False
        with connection.cursor() as cursor:
            cursor.execute(
                _APPEND,
                {
                    "id": uuid7(),
                    "user_id": user.pk,
                    "kind": kind,
                    "date": day,
                    "project": project,
                    "lines": lines,
                    "now": now,
                    "max_length": MAX_DOCUMENT_LENGTH,
                },
            )
            return bool(cursor.rowcount)


class MemoryDocument(models.Model):
    class Kind(models.TextChoices):
        MEMORY = Corpus.MEMORY.value, Corpus.MEMORY.label
        DAILY_LOG = Corpus.DAILY_LOG.value, Corpus.DAILY_LOG.label
        # Found like MEMORY.md, in its corpus.
        ABOUT = "about", "About me"
        NOTE = "note", "note"

        @classmethod
        def in_corpus(cls, corpus: Corpus) -> "list[MemoryDocument.Kind]":
            return [cls.DAILY_LOG] if corpus == Corpus.DAILY_LOG else [cls.MEMORY, cls.ABOUT, cls.NOTE]

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = owner()
    kind = models.CharField(max_length=16, choices=Kind)
    date = models.DateField(null=True, blank=True, help_text="The day of a log; other kinds have none.")
    project = models.CharField(
        max_length=MAX_PROJECT_LENGTH,
        blank=True,
        default="",
        db_default="",
        help_text="Empty for the ones that belong to none.",
    )
    title = models.CharField(max_length=MAX_NOTE_TITLE, blank=True, default="", help_text="Of a note.")
    content = models.TextField(blank=True, default="", help_text="Markdown.")
    # Compared with the version that a writer has read, so that of two writers with the same version only one succeeds.
    version = models.PositiveIntegerField(default=1, help_text="Counts up with every write.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    objects = MemoryDocumentQuerySet.as_manager()

    class Meta:
        db_table = "memory_documents"
        constraints = [
            # Two missing dates are equal: one MEMORY.md per user and project, and one log per day of each. Also used to
            # read by date.
            models.UniqueConstraint(
                fields=["user", "kind", "date", "project"],
                condition=~Q(kind="note"),
                nulls_distinct=False,
                name="memory_documents_once",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["memory", "about", "note"], date__isnull=True)
                | Q(kind="daily_log", date__isnull=False),
                name="memory_documents_logs_have_dates",
            ),
            models.CheckConstraint(
                condition=~Q(kind="about") | Q(project=""),
                name="memory_documents_one_about_me",
            ),
        ]
        indexes = [
            models.Index(
                fields=["user", "-updated_at", "-id"], name="idx_memory_documents_notes", condition=Q(kind="note")
            ),
            models.Index(fields=["user", "project"], condition=~Q(project=""), name="idx_memory_documents_project"),
        ]

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.kind, self.date, self.project) if part)

    @property
    def corpus(self) -> Corpus:
        return Corpus.DAILY_LOG if self.kind == self.Kind.DAILY_LOG else Corpus.MEMORY

    @property
    def day(self) -> DocumentDay:
        return ABOUT_ME if self.kind == self.Kind.ABOUT else self.date


class MemoryDocumentVersion(models.Model):
    """The text of a document before it was overwritten. An append keeps the earlier text, so it makes no version."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = owner()
    # The database deletes them with their document: see the migration.
    document = models.ForeignKey(MemoryDocument, on_delete=models.DO_NOTHING, db_index=False, db_constraint=False)
    version = models.PositiveIntegerField(help_text="The document's, when this was written over.")
    content = models.TextField(blank=True)
    written_at = models.DateTimeField(help_text="When the document came to hold this.")

    objects = OwnedQuerySet["MemoryDocumentVersion"].as_manager()

    class Meta:
        db_table = "memory_document_versions"
        constraints = [
            models.UniqueConstraint(fields=["user", "document", "version"], name="memory_document_versions_once")
        ]

    def __str__(self) -> str:
        return f"{self.document_id}:{self.version}"


class MemoryRecordQuerySet(OwnedQuerySet["MemoryRecord"]):
    def current(self, user: User, *, today: date) -> Self:
        """A user's records that hold on this day."""
        return self.for_user(user).exclude(pk__in=past_records(user, today=today))

    def with_replacement(self, user: User) -> Self:
        """With `replaced_by`, the id of the record that replaces this one, and `replaced_on`, the day since when."""
        newer = MemoryRecord.objects.for_user(user).filter(replaces=OuterRef("pk"))
        since = Coalesce("valid_from", TruncDate("created_at", tzinfo=user.zone))
        return self.annotate(
            replaced_by=Subquery(newer.values("pk")[:1]), replaced_on=Subquery(newer.values(day=since)[:1])
        )


class MemoryRecord(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = owner()
    content = models.TextField()
    type = models.CharField(max_length=MAX_LABEL_LENGTH, help_text="For example ARCHITECTURAL_DECISION.")
    project_id = models.CharField(max_length=MAX_PROJECT_LENGTH, blank=True, default="", help_text="Empty for none.")
    tags: "ArrayField[list[str], list[str]]" = ArrayField(
        models.CharField(max_length=MAX_LABEL_LENGTH), blank=True, default=list
    )
    created_at = models.DateTimeField(default=timezone.now)
    # No foreign key: the records of an import come in any order.
    replaces = models.UUIDField(null=True, blank=True, help_text="The record that this one takes the place of.")
    valid_from = models.DateField(null=True, blank=True, help_text="The first day on which it holds.")
    valid_until = models.DateField(null=True, blank=True, help_text="The last day on which it holds.")
    done_at = models.DateTimeField(null=True, blank=True, help_text="Of a to-do: when it was done.")
    source_conversation = models.UUIDField(null=True, blank=True, help_text="The chat it was kept from.")
    source_turn = models.PositiveIntegerField(null=True, blank=True, help_text="The turn of that chat.")

    objects = MemoryRecordQuerySet.as_manager()

    # Filled by `with_replacement`.
    replaced_by: UUID | None = None
    replaced_on: date | None = None

    class Meta:
        db_table = "memory_records"
        indexes = [
            models.Index(fields=["user", "created_at", "id"], name="idx_memory_records_recent"),
            models.Index(fields=["user", "type"], name="idx_memory_records_type"),
            models.Index(fields=["user", "project_id"], condition=~Q(project_id=""), name="idx_memory_records_project"),
            models.Index(
                fields=["user", "valid_until"],
                condition=Q(valid_until__isnull=False),
                name="idx_memory_records_until",
            ),
            models.Index(
                fields=["user", "source_conversation", "source_turn"],
                condition=Q(source_conversation__isnull=False),
                name="idx_memory_records_source",
            ),
        ]
        constraints = [
            # Also used to find what is replaced.
            models.UniqueConstraint(
                fields=["user", "replaces"],
                condition=Q(replaces__isnull=False),
                name="memory_records_replaced_once",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)


MAX_PROPOSAL_LENGTH = 1_000
MAX_QUOTE_LENGTH = 1_000
WAITING, ACCEPTED, REJECTED, NEVER = "waiting", "accepted", "rejected", "never"
PROPOSAL_STATES = (WAITING, ACCEPTED, REJECTED, NEVER)
"""`never`: nothing about this is proposed again; `rejected`: not the same."""


class Proposal(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = owner()
    state = models.CharField(
        max_length=8, default=WAITING, choices=[(state, state.capitalize()) for state in PROPOSAL_STATES]
    )
    content = models.TextField()
    type = models.CharField(max_length=MAX_LABEL_LENGTH)
    project_id = models.CharField(max_length=MAX_PROJECT_LENGTH, blank=True, default="")
    # A migration creates the foreign key: it goes with its turn. An agent's has none.
    source_conversation = models.UUIDField(null=True, blank=True, help_text="The chat it comes from.")
    source_turn = models.PositiveIntegerField(null=True, blank=True, help_text="The turn of that chat.")
    quote = models.TextField(blank=True, default="", help_text="The words of the person that say it.")
    replaces = models.UUIDField(null=True, blank=True, help_text="The record that is no longer true.")
    record = models.UUIDField(null=True, blank=True, help_text="The record that was made of it.")
    # Of any size, as in `embeddings`: compared only with vectors of the same model.
    vector = HalfVectorField(null=True, blank=True)
    vector_model = models.CharField(max_length=200, blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    decided_at = models.DateTimeField(null=True, blank=True)

    objects = OwnedQuerySet["Proposal"].as_manager()

    class Meta:
        db_table = "memory_proposals"
        indexes = [
            models.Index(fields=["user", "state", "created_at", "id"], name="idx_memory_proposals_state"),
            models.Index(
                fields=["user", "source_conversation", "source_turn"],
                condition=Q(source_conversation__isnull=False),
                name="idx_memory_proposals_source",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)
