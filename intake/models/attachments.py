"""What users attach to messages: each file as a row, its bytes in pieces, and the text that a worker read from it.

The bytes of a content are stored once for each user, in pieces by their SHA-256: a file that is attached again, and the
versions of a message, share them. They go with the user's last attachment of that content
(`intake.attachments.services`).
"""

from django.db import models
from django.db.models import Q
from django.utils import timezone

from core.ids import uuid7
from intake.models.conversations import OwnedQuerySet
from intake.models.users import owner

NAME_LENGTH = 255
MEDIA_TYPE_LENGTH = 127
PLACE_LENGTH = 200
ADDRESS_LENGTH = 2_000
PIECE_BYTES = 256 * 1024


class Attachment(models.Model):
    """A file of a message, or of none yet: then it has no conversation, and is removed after a day."""

    class Kind(models.TextChoices):
        FILE = "file"
        PASTED = "pasted"
        IMPORTED = "imported"
        # A page of the web that was read for the answer of its turn: no file of the message.
        PAGE = "page"

    class State(models.TextChoices):
        WAITING = "waiting"
        READ = "read"
        UNREADABLE = "unreadable"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # A migration creates the foreign keys, which cascade in the database: to the user, and to the turn.
    user = owner(models.DO_NOTHING)
    conversation_id = models.UUIDField(null=True, editable=False)
    turn_number = models.PositiveIntegerField(null=True, editable=False)
    # Its place among the attachments of the message, from 0.
    position = models.PositiveSmallIntegerField(default=0)
    name = models.CharField(max_length=NAME_LENGTH)
    media_type = models.CharField(max_length=MEDIA_TYPE_LENGTH)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    # Of a page.
    address = models.CharField(max_length=ADDRESS_LENGTH, blank=True, default="", db_default="")
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.FILE)
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)
    # Why it cannot be read: `{"message"}`, and perhaps `sentence` (`core.text.kept`).
    error = models.JSONField(null=True, blank=True)
    # The number of texts, and their outline: `[place, number of its first text]` in order.
    parts = models.PositiveIntegerField(default=0)
    places = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    read_at = models.DateTimeField(null=True, editable=False)
    # Rows in the state `waiting` are the queue of the workers that read files.
    attempts = models.PositiveSmallIntegerField(default=0)
    next_attempt_at = models.DateTimeField(default=timezone.now)

    objects = OwnedQuerySet["Attachment"].as_manager()

    class Meta:
        db_table = "attachments"
        constraints = [
            models.CheckConstraint(
                condition=Q(conversation_id=None, turn_number=None)
                | Q(conversation_id__isnull=False, turn_number__isnull=False),
                name="attachments_of_a_turn_or_of_none",
            ),
        ]
        indexes = [
            models.Index(
                fields=["user", "conversation_id", "turn_number"],
                name="idx_attachments_turn",
                condition=Q(conversation_id__isnull=False),
            ),
            # The size of a user's files by an index-only scan; also whether a content is still attached.
            models.Index(fields=["user", "sha256"], include=["size"], name="idx_attachments_content"),
            models.Index(fields=["user", "-created_at", "-id"], name="idx_attachments_recent"),
            models.Index(fields=["next_attempt_at"], name="idx_attachments_waiting", condition=Q(state="waiting")),
            models.Index(fields=["created_at"], name="idx_attachments_unclaimed", condition=Q(conversation_id=None)),
        ]

    def __str__(self) -> str:
        return str(self.id)

    @property
    def title(self) -> str:
        """The name of a file; of a page, its title, which stands before the ending of its text."""
        return self.name.removesuffix(".md") if self.kind == self.Kind.PAGE else self.name


class AttachmentPiece(models.Model):
    """Up to `PIECE_BYTES` bytes of a content, numbered from 0. An empty file has one piece without bytes.

    Piece 0 is the lock of the content: a transaction that attaches it holds a share of that row, and one that deletes
    the content holds it alone.
    """

    pk = models.CompositePrimaryKey("user_id", "sha256", "number")
    user = owner(models.DO_NOTHING)
    sha256 = models.CharField(max_length=64)
    number = models.PositiveIntegerField()
    data = models.BinaryField()

    objects = OwnedQuerySet["AttachmentPiece"].as_manager()

    class Meta:
        db_table = "attachment_pieces"

    def __str__(self) -> str:
        return f"{self.sha256}#{self.number} of user {self.user_id}"


class AttachmentText(models.Model):
    """A part of an attachment's text, numbered from 0 in the order of the file, with its place: a page, a sheet."""

    pk = models.CompositePrimaryKey("user_id", "attachment_id", "number")
    user = owner(models.DO_NOTHING)
    # The database deletes the texts with their attachment.
    attachment = models.ForeignKey(
        Attachment, on_delete=models.DO_NOTHING, related_name="texts", db_index=False, db_constraint=False
    )
    number = models.PositiveIntegerField()
    place = models.CharField(max_length=PLACE_LENGTH, blank=True, default="")
    text = models.TextField()

    objects = OwnedQuerySet["AttachmentText"].as_manager()

    class Meta:
        db_table = "attachment_texts"

    def __str__(self) -> str:
        return f"{self.attachment_id}#{self.number}"
