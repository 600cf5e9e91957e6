"""Conversations and their turns: each row names its owner; a personal query begins at `for_caller` or `for_user`."""

from collections.abc import Iterable
from datetime import datetime
from typing import Self
from uuid import UUID

from django.db import models
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.db.models.signals import post_save
from django.dispatch import Signal
from django.utils import timezone

from core.db.statements import ask
from core.ids import uuid7
from core.isolation.caller import Caller
from intake.models.users import User

TITLE_LENGTH = 80


class ConversationQuerySet(models.QuerySet["Conversation"]):
    def for_user(self, user: User) -> Self:
        return self.for_caller(Caller(user_id=user.pk))

    def for_caller(self, caller: Caller) -> Self:
        return self.filter(caller.owns())

    def newest_first(self) -> Self:
        return self.order_by("-last_active_at", "-id")


class Conversation(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # NULL for rows from before there were owners: nobody reads those.
    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    title = models.CharField(max_length=TITLE_LENGTH, blank=True, default="")
    source = models.CharField(max_length=32, default="chat")
    external_id = models.CharField(max_length=200, blank=True, default="")
    # The number of the latest turn; locking this row is what makes turn numbers gap-free among concurrent writers.
    turn_count = models.PositiveIntegerField(default=0, editable=False)
    started_at = models.DateTimeField(default=timezone.now)
    last_active_at = models.DateTimeField(default=timezone.now)

    objects = ConversationQuerySet.as_manager()

    class Meta:
        db_table = "intake_conversations"
        indexes = [
            models.Index(fields=["user"], name="idx_ic_user_id"),
            models.Index(fields=["user", "-last_active_at", "-id"], name="idx_ic_user_recent"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "source", "external_id"],
                condition=~Q(external_id=""),
                name="intake_conversations_imported_once",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)


# The conversation's row stays locked until the transaction ends.
_RECORD = """
WITH taken AS (
    UPDATE intake_conversations
       SET turn_count = turn_count + 1, last_active_at = greatest(last_active_at, %(said_at)s)
     WHERE id = %(conversation_id)s
    RETURNING user_id, turn_count
)
INSERT INTO intake_conversation_turns
       (conversation_id, user_id, turn_number, user_message, assistant_message, status, said_at, created_at, updated_at,
        is_recall, tool_calls)
SELECT %(conversation_id)s, user_id, turn_count, %(user_message)s, %(assistant_message)s, %(status)s, %(said_at)s,
       %(now)s, %(now)s, false, '[]'
  FROM taken
RETURNING id, user_id, turn_number
"""


# `instance` has the owner and the number that are likely, and no key yet; `post_save` comes with those that it got.
# PostgreSQL does what it is asked for meanwhile once the turn is stored.
turn_being_recorded = Signal()


class TurnQuerySet(models.QuerySet["Turn"]):
    def record(
        self, *, conversation: Conversation, user_message: str, assistant_message: str, said_at: datetime
    ) -> "Turn":
        """Save a whole exchange as the conversation's next turn, and send `post_save` for it as `Model.save` does.

        One prepared statement takes the number and stores the turn: `save` after it takes twice as long. PostgreSQL is
        at it while `turn_being_recorded` is sent. Raises `Conversation.DoesNotExist`.
        """
        now = timezone.now()
        turn = Turn(
            conversation=conversation,
            user_id=conversation.user_id,
            turn_number=conversation.turn_count + 1,
            user_message=user_message,
            assistant_message=assistant_message,
            status=Turn.Status.COMPLETE,
            said_at=said_at,
            created_at=now,
            updated_at=now,
        )
        parameters = {
            "conversation_id": conversation.pk,
            "user_message": user_message,
            "assistant_message": assistant_message,
            "status": Turn.Status.COMPLETE.value,
            "said_at": said_at,
            "now": now,
        }
        answer = ask(_RECORD, parameters)
        turn_being_recorded.send(sender=Turn, instance=turn)
        stored = answer()
        if not stored:
            raise Conversation.DoesNotExist
        ((turn.pk, turn.user_id, turn.turn_number),) = stored
        turn._state.adding, turn._state.db = False, self.db
        post_save.send(sender=Turn, instance=turn, created=True, update_fields=None, raw=False, using=self.db)
        return turn

    def for_user(self, user: User) -> Self:
        return self.filter(user=user)

    def for_caller(self, caller: Caller) -> Self:
        return self.filter(caller.owns())

    def in_order(self) -> Self:
        return self.order_by("turn_number")

    def with_keys(self, keys: Iterable[tuple[UUID, int]]) -> Self:
        """The turns of these (conversation, turn number) pairs."""
        pairs = list(keys)
        if not pairs:
            return self.none()
        # As two parameters, however many there are: a condition for each pair takes longer to write than to run.
        wanted = RawSQL(
            "(conversation_id, turn_number) IN (SELECT * FROM unnest(%s::uuid[], %s::int[]))",
            ([key for key, _ in pairs], [number for _, number in pairs]),
            output_field=models.BooleanField(),
        )
        return self.filter(wanted)


class Turn(models.Model):
    """What a person said and what was answered."""

    class Status(models.TextChoices):
        STREAMING = "streaming"
        COMPLETE = "complete"
        INTERRUPTED = "interrupted"
        FAILED = "failed"

    # The foreign keys, which cascade in the database, are made by a migration.
    conversation = models.ForeignKey(
        Conversation, on_delete=models.CASCADE, related_name="turns", db_index=False, db_constraint=False
    )
    # The owner again, so that the database can tell whose row this is without asking another table.
    user = models.ForeignKey(User, null=True, blank=True, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    turn_number = models.PositiveIntegerField()
    user_message = models.TextField()
    assistant_message = models.TextField(blank=True, default="")
    # An answer made only of the person's own history: shown, never indexed, or memory would echo itself.
    is_recall = models.BooleanField(default=False)
    tool_calls = models.JSONField(default=list, blank=True)
    status = models.CharField(max_length=16, choices=Status, default=Status.STREAMING)
    error = models.JSONField(null=True, blank=True)
    said_at = models.DateTimeField(default=timezone.now)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TurnQuerySet.as_manager()

    class Meta:
        db_table = "intake_conversation_turns"
        constraints = [
            models.UniqueConstraint(
                fields=["conversation", "turn_number", "user"], nulls_distinct=False, name="intake_turns_numbered_once"
            ),
        ]
        indexes = [
            models.Index(fields=["user", "said_at"], name="idx_ict_user_said_at"),
            models.Index(fields=["updated_at"], name="idx_ict_streaming", condition=Q(status="streaming")),
        ]

    def __str__(self) -> str:
        return f"{self.conversation_id}#{self.turn_number}"

    @property
    def has_ended(self) -> bool:
        return self.status != self.Status.STREAMING
