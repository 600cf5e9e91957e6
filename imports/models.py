"""The models of imports: each import, the contents of its export, the imported items, and the workers' queue."""

from datetime import datetime, timedelta
from typing import Any

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from core.ids import uuid7
from core.text import LONGEST_PROJECT, restored
from intake.models.conversations import OwnedQuerySet
from intake.models.users import owner

# Enough of a digest that no two tokens of a person are confused.
BEGUN_BY_LENGTH = 32
# An upload that is not continued is deleted after this time.
UNUSED_FOR = timedelta(days=1)
MAX_FILENAME = 255
MAX_PRODUCT = 32
MAX_TITLE = 300


class Import(models.Model):
    """The import of one export, from its upload until it is undone."""

    class State(models.TextChoices):
        UPLOADING = "uploading"
        READING = "reading"
        READY = "ready"
        WAITING = "waiting"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"
        UNDOING = "undoing"
        UNDONE = "undone"

        @classmethod
        def with_upload(cls) -> tuple["Import.State", ...]:
            return (cls.UPLOADING, cls.READING, cls.READY, cls.WAITING, cls.RUNNING)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = owner()
    filename = models.CharField(max_length=MAX_FILENAME)
    # A digest of the token that began it, which may also take it back; empty for a session.
    begun_by = models.CharField(max_length=BEGUN_BY_LENGTH, blank=True, default="", db_default="", editable=False)
    # The product that the user named, or else the recognised one.
    product = models.CharField(max_length=MAX_PRODUCT, blank=True, default="")
    state = models.CharField(max_length=16, choices=State, default=State.UPLOADING)
    bytes = models.BigIntegerField()
    bytes_received = models.BigIntegerField(default=0)
    # Counts, by name: in the export, selected, and stored so far.
    found: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    selected: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    stored: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    # Where the turns of the export went: at each place the `turns`, and the `characters` of the user's words.
    # `read` is the sum of the others: `stored`, `changed`, `here`, `deleted` and `not_chosen`.
    account: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    progress = models.FloatField(default=0.0, help_text="0 to 1 within the state.")
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    # Texts; `{text, sentence}` for one with values (`core.text.kept`); and of the error `{error, sentence}`.
    notices: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    # The first hundred, each `{where, reason, external_id}` and perhaps `sentence`; `found` counts all.
    skipped: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    error = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = OwnedQuerySet["Import"].as_manager()

    class Meta:
        db_table = "imports"
        indexes = [models.Index(fields=["user", "-created_at", "-id"], name="idx_imports_recent")]

    def __str__(self) -> str:
        return str(self.id)

    def count(self, field: str, **new: int) -> None:
        """Add to the counts of `found` or of `stored`."""
        counts = getattr(self, field) or {}
        setattr(self, field, {**counts, **{name: counts.get(name, 0) + number for name, number in new.items()}})

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing happens until the user asks for it: a stream of events ends."""
        state = self.State
        return self.state in (state.READY, state.DONE, state.FAILED, state.CANCELLED, state.UNDONE)

    @property
    def notice_sentences(self) -> list[str]:
        return [restored(each, "text") if isinstance(each, dict) else each for each in self.notices if _is_notice(each)]

    @property
    def error_sentence(self) -> str:
        """The sentence of `error`, whose values stand among the notices."""
        own = [each for each in self.notices if not _is_notice(each) and each["error"] == self.error]
        return restored(own[0], "error") if own else self.error

    @property
    def can_be_undone(self) -> bool:
        has_ended = self.state in (self.State.DONE, self.State.CANCELLED, self.State.FAILED)
        return has_ended and any((self.stored or {}).values())

    @property
    def expires_at(self) -> datetime | None:
        """The time when an unused upload is deleted."""
        if self.state not in (self.State.UPLOADING, self.State.READY):
            return None
        return self.updated_at + UNUSED_FOR


def _is_notice(each: Any) -> bool:
    return isinstance(each, str) or "error" not in each


class ImportJob(models.Model):
    """A request for a worker. It contains nothing personal except the owner: a worker acts as that user only once it
    has claimed the job.
    """

    user = owner()
    import_id = models.UUIDField()
    created_at = models.DateTimeField(default=timezone.now)
    # From this time on another worker may claim it.
    due_at = models.DateTimeField(default=timezone.now)
    # New for each worker that claims the job: one that lost its lease finds another value here, and stops.
    lease = models.UUIDField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="How often it was taken since it last got on.")

    class Meta:
        db_table = "import_jobs"
        constraints = [models.UniqueConstraint(fields=["user", "import_id"], name="import_jobs_once")]
        indexes = [models.Index(fields=["due_at", "id"], name="idx_import_jobs_due")]

    def __str__(self) -> str:
        return str(self.import_id)


class ItemKind(models.TextChoices):
    """The kinds of imported items."""

    CONVERSATION = "conversation"
    TURN = "turn"
    DOCUMENT = "document"
    RECORD = "record"
    PROJECT = "project"


# Those that a user selects: a turn comes in with its conversation.
ENTRY_KINDS = tuple(kind.value for kind in ItemKind if kind is not ItemKind.TURN)


class ImportEntry(models.Model):
    """A conversation or document of an export: a line of the preview, and afterwards of the report."""

    class Status(models.TextChoices):
        NEW = "new"
        LONGER = "longer"
        HERE = "here"
        DELETED = "deleted", "deleted here"

    id = models.BigAutoField(primary_key=True)
    user = owner()
    # A migration creates the foreign key, (user_id, import_id), which deletes the entries with their import.
    batch = models.ForeignKey(
        Import, on_delete=models.DO_NOTHING, db_column="import_id", db_index=False, db_constraint=False
    )
    kind = models.CharField(max_length=16, choices=[(kind, ItemKind(kind).label) for kind in ENTRY_KINDS])
    external_id = models.TextField()
    title = models.CharField(max_length=MAX_TITLE, blank=True, default="")
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    turns = models.PositiveIntegerField(default=0)
    new_turns = models.PositiveIntegerField(default=0, help_text="How many are not here yet, or longer than here.")
    versions = models.PositiveIntegerField(default=0)
    status = models.CharField(max_length=16, choices=Status)
    is_selected = models.BooleanField(default=True)
    # The number of stored turns, or 1 for a document; and the target of a link.
    stored = models.PositiveIntegerField(default=0)
    conversation_id = models.UUIDField(null=True)

    objects = OwnedQuerySet["ImportEntry"].as_manager()

    class Meta:
        db_table = "import_entries"
        verbose_name_plural = "import entries"
        constraints = [
            models.UniqueConstraint(fields=["user", "batch", "kind", "external_id"], name="import_entries_once"),
        ]
        indexes = [
            models.Index("user", "batch", F("last_at").desc(nulls_last=True), "id", name="idx_import_entries_recent"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"


class ImportedItem(models.Model):
    """An imported conversation, turn, document, record or project: its import, and its row here.

    It stays when the user deletes that row, so that the next export does not import it again. It therefore has no
    foreign key to the row. `key` is a digest of the product and of the ids that name the item there
    (`imports/storing/contents.py`): one column, however long those ids are.
    """

    id = models.BigAutoField(primary_key=True)
    user = owner()
    # NULL once the import has been removed from the list. A migration creates the foreign key.
    batch = models.ForeignKey(
        Import, null=True, on_delete=models.DO_NOTHING, db_column="import_id", db_index=False, db_constraint=False
    )
    kind = models.CharField(max_length=16, choices=ItemKind)
    key = models.BinaryField(max_length=16)
    content_hash = models.BinaryField(max_length=16, help_text="BLAKE2b-128 of the text as it came in.")
    # The hashes of the texts that longer ones have replaced, by which an older export is known; and the last import
    # that brought a longer one, where another brought the item.
    replaced = models.BinaryField(default=b"", db_default=b"")
    lengthened_by = models.UUIDField(null=True)
    conversation_id = models.UUIDField(null=True)
    turn_id = models.BigIntegerField(null=True)
    # A document, a record or a project.
    row_id = models.UUIDField(null=True)
    # For a document with other text too: the imported lines, by which undoing finds and removes them. For a project: a
    # digest of what it was, by which undoing knows whether it was changed here.
    lines = models.TextField(blank=True, default="")
    # The document: a day, `about`, or empty for MEMORY.md; of a project's own document, after a blank its label.
    place = models.CharField(max_length=16 + 1 + LONGEST_PROJECT, blank=True, default="")

    objects = OwnedQuerySet["ImportedItem"].as_manager()

    class Meta:
        db_table = "imported_items"
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="imported_items_once")]
        indexes = [
            models.Index(fields=["user", "batch", "kind", "id"], name="idx_imported_items_of"),
            models.Index(
                fields=["user", "conversation_id"],
                name="idx_imported_items_in",
                condition=Q(conversation_id__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"

    def note_lengthened(self, *, by: Import) -> None:
        """Before its hash becomes that of a longer text."""
        if by.pk not in (self.batch_id, self.lengthened_by):
            self.replaced = bytes(self.replaced) + bytes(self.content_hash)
            self.lengthened_by = by.pk

    def was_before(self, content_hash: bytes) -> bool:
        """Whether a longer text has replaced this one."""
        replaced, size = bytes(self.replaced), len(content_hash)
        return content_hash in (replaced[at : at + size] for at in range(0, len(replaced), size))
