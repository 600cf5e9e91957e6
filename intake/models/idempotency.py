"""The kept responses of idempotent requests."""

from django.db import models
from django.utils import timezone

from intake.models.conversations import OwnedQuerySet
from intake.models.users import User


class IdempotentAnswerQuerySet(OwnedQuerySet["IdempotentAnswer"]):
    """Starts at `for_caller`."""


class IdempotentAnswer(models.Model):
    """One key of a caller: a digest of its request, and the response."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    key = models.CharField(max_length=255)
    # A digest of the operation and the body; keyed, so that the body cannot be guessed from it.
    request_digest = models.CharField(max_length=64)
    # As text, because jsonb does not keep the order of fields.
    answer = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = IdempotentAnswerQuerySet.as_manager()

    class Meta:
        db_table = "intake_idempotent_answers"
        constraints = [
            models.UniqueConstraint(fields=["user", "key"], name="intake_idempotent_answers_once"),
        ]

    def __str__(self) -> str:
        return f"{self.user_id}: {self.key}"
