"""Imports as the database knows them: each import, what its export holds, what it brought, and the workers' queue."""

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from core.ids import uuid7
from intake.models.conversations import OwnedQuerySet

MAX_FILENAME = 255
MAX_PRODUCT = 32
MAX_TITLE = 300


def _owner() -> "models.ForeignKey[Any, Any]":
    return models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False, db_constraint=False)


class ImportQuerySet(OwnedQuerySet["Import"]):
    def open(self) -> "ImportQuerySet":
        """Those that hold an upload."""
        return self.filter(state__in=Import.State.with_upload())


class Import(models.Model):
    """One export that a person brings in, from its upload to its undoing."""

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

        @classmethod
        def at_rest(cls) -> tuple["Import.State", ...]:
            """Nothing happens until the person asks for it: a stream of events ends."""
            return (cls.READY, cls.DONE, cls.FAILED, cls.CANCELLED, cls.UNDONE)

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = _owner()
    filename = models.CharField(max_length=MAX_FILENAME)
    # What the person says it is, or else what it was recognised as.
    product = models.CharField(max_length=MAX_PRODUCT, blank=True, default="")
    state = models.CharField(max_length=16, choices=State, default=State.UPLOADING)
    bytes = models.BigIntegerField()
    bytes_received = models.BigIntegerField(default=0)
    # Counts, by name: in the export, chosen, and stored so far.
    found: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    selected: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    stored: "models.JSONField[Any, Any]" = models.JSONField(null=True)
    progress = models.FloatField(default=0.0, help_text="0 to 1 within the state.")
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    notices: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    # The first hundred, each `{where, reason, external_id}`; `found` counts all.
    skipped: "models.JSONField[Any, Any]" = models.JSONField(default=list)
    error = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = ImportQuerySet.as_manager()

    class Meta:
        db_table = "imports"
        indexes = [models.Index(fields=["user", "-created_at", "-id"], name="idx_imports_recent")]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def is_at_rest(self) -> bool:
        return self.state in self.State.at_rest()

    @property
    def can_be_undone(self) -> bool:
        has_ended = self.state in (self.State.DONE, self.State.CANCELLED, self.State.FAILED)
        return has_ended and any((self.stored or {}).values())

    @property
    def expires_at(self) -> datetime | None:
        """When the upload is deleted, if nobody goes on with it."""
        if self.state not in (self.State.UPLOADING, self.State.READY):
            return None
        return self.updated_at + timedelta(seconds=settings.IMPORTS_EXPIRE_SECONDS)


class ImportJob(models.Model):
    """That a worker is wanted for an import. Nothing in it is personal but whose it is: a worker acts as that person
    only once it has taken the job."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    import_id = models.UUIDField()
    created_at = models.DateTimeField(default=timezone.now)
    # Another worker may take it from this moment on.
    due_at = models.DateTimeField(default=timezone.now)
    # Given anew to each worker that takes it: one that lost its lease finds another here, and stops.
    lease = models.UUIDField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="How often it was taken since it last got on.")

    class Meta:
        db_table = "import_jobs"
        constraints = [models.UniqueConstraint(fields=["user", "import_id"], name="import_jobs_once")]
        indexes = [models.Index(fields=["due_at", "id"], name="idx_import_jobs_due")]

    def __str__(self) -> str:
        return str(self.import_id)


class EntryKind(models.TextChoices):
    """What an export is made of, as a person chooses among it."""

    CONVERSATION = "conversation"
    DOCUMENT = "document"
    RECORD = "record"


class ImportEntryQuerySet(OwnedQuerySet["ImportEntry"]):
    pass


class ImportEntry(models.Model):
    """A conversation or document that an export holds: a line of the preview, and of the report afterwards."""

    class Status(models.TextChoices):
        NEW = "new"
        LONGER = "longer"
        HERE = "here"
        DELETED = "deleted", "deleted here"

    id = models.BigAutoField(primary_key=True)
    user = _owner()
    # A migration makes the foreign key, (user_id, import_id), by which the entries go with their import.
    batch = models.ForeignKey(
        Import, on_delete=models.DO_NOTHING, db_column="import_id", db_index=False, db_constraint=False
    )
    kind = models.CharField(max_length=16, choices=EntryKind)
    external_id = models.TextField()
    title = models.CharField(max_length=MAX_TITLE, blank=True, default="")
    first_at = models.DateTimeField(null=True)
    last_at = models.DateTimeField(null=True)
    turns = models.PositiveIntegerField(default=0)
    versions = models.PositiveIntegerField(default=0)
    status = models.CharField(max_length=16, choices=Status)
    is_selected = models.BooleanField(default=True)
    # How many turns came in, or 1 for a document; and where a link leads.
    stored = models.PositiveIntegerField(default=0)
    conversation_id = models.UUIDField(null=True)

    objects = ImportEntryQuerySet.as_manager()

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


class ImportedItemQuerySet(OwnedQuerySet["ImportedItem"]):
    pass


class ImportedItem(models.Model):
    """That a conversation, turn, document or record of a product came in, by which import, and as what.

    It stays when the person deletes here what it became: so the next export does not bring it back. It has no foreign
    key to that for the same reason. `key` is a digest of the product and of the ids that name the thing there
    (`imports/keys.py`): one column, however long those ids are.
    """

    class Kind(models.TextChoices):
        CONVERSATION = "conversation"
        TURN = "turn"
        DOCUMENT = "document"
        RECORD = "record"

    id = models.BigAutoField(primary_key=True)
    user = _owner()
    # NULL once the import has been removed from the list. A migration makes the foreign key.
    batch = models.ForeignKey(
        Import, null=True, on_delete=models.DO_NOTHING, db_column="import_id", db_index=False, db_constraint=False
    )
    kind = models.CharField(max_length=16, choices=Kind)
    key = models.BinaryField(max_length=16)
    content_hash = models.BinaryField(max_length=16, help_text="BLAKE2b-128 of the text as it came in.")
    conversation_id = models.UUIDField(null=True)
    turn_id = models.BigIntegerField(null=True)
    # A document or a record.
    row_id = models.UUIDField(null=True)
    # Of a document that others write too: the lines that came in, by which they can be found and taken out again.
    lines = models.TextField(blank=True, default="")
    # Which document that is: a day, `about`, or nothing for MEMORY.md.
    place = models.CharField(max_length=16, blank=True, default="")

    objects = ImportedItemQuerySet.as_manager()

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
