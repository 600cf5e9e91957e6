"""Answers kept for a while, so that the same request sent again changes nothing."""

from django.db import models
from django.utils import timezone

from intake.models.conversations import OwnedQuerySet
from intake.models.users import User


class IdempotentAnswerQuerySet(OwnedQuerySet["IdempotentAnswer"]):
    """Begins at `for_caller`."""


class IdempotentAnswer(models.Model):
    """What a caller's key stands for: the request it came with, and the answer that request was given."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    key = models.CharField(max_length=255)
    # Of what was asked for and the body; keyed, so that it gives no guess at somebody's words away.
    request_digest = models.CharField(max_length=64)
    # As text, because jsonb would not give the fields back in their order.
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
