"""The kept responses of idempotent requests."""

from django.db import models
from django.utils import timezone

from intake.models.conversations import OwnedQuerySet
from intake.models.users import owner


class IdempotentAnswer(models.Model):
    """One key of a caller: a digest of its request, and the response."""

    user = owner()
    key = models.CharField(max_length=255)
    # A digest of the operation and the body; keyed, so that the body cannot be guessed from it.
    request_digest = models.CharField(max_length=64)
    # As text, because jsonb does not keep the order of fields.
    answer = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OwnedQuerySet["IdempotentAnswer"].as_manager()

    class Meta:
        db_table = "intake_idempotent_answers"
        constraints = [
            models.UniqueConstraint(fields=["user", "key"], name="intake_idempotent_answers_once"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id}: {self.key}"


class KnownAnswer(models.Model):
    """The digest of an answer that another program has, by which its next request finds the turn.

    Without its turn it says for a while that the chat was deleted here, so that the program does not bring it back.
    """

    # The migration creates the foreign key.
    user = owner()
    digest = models.CharField(max_length=64)
    # A link without a foreign key: a turn may be gone.
    turn_id = models.BigIntegerField(null=True)
    gone_at = models.DateTimeField(null=True)

    objects = OwnedQuerySet["KnownAnswer"].as_manager()

    class Meta:
        db_table = "intake_known_answers"
        indexes = [models.Index(fields=["user", "digest"], name="idx_ika_digest")]

    def __str__(self) -> str:
        return f"{self.user_id}: {self.digest}"
