"""What agents leave in the database: tokens that prove whose memory they may search, and answers kept for retries."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils import timezone
from knox.models import AbstractAuthToken

from intake.ids import uuid7
from intake.models import User


def default_scopes() -> list[str]:
    return ["search", "write"]


class AccessToken(AbstractAuthToken):
    """A knox token (only its digest is kept) with a name its owner gave it and what it may do."""

    # What its owner calls it by when they revoke it; the digest is nobody's to see.
    public_id = models.UUIDField(default=uuid7, unique=True, editable=False)
    name: "models.CharField[str, str]" = models.CharField(max_length=80, blank=True, default="")
    scopes: "ArrayField[list[str], list[str]]" = ArrayField(models.CharField(max_length=16), default=default_scopes)
    # To the minute: a write for every call would cost more than it tells.
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        db_table = "access_tokens"


class IdempotentAnswer(models.Model):
    """The answer to a write that its caller gave a key, so that the same request sent again changes nothing."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, db_index=False)
    key = models.CharField(max_length=255)
    # Of the tool's name and the body.
    request_digest = models.CharField(max_length=64)
    # As text, because jsonb would not give the fields back in their order.
    answer = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "idempotent_answers"
        constraints = [models.UniqueConstraint(fields=["user", "key"], name="idempotent_answers_once")]

    def __str__(self) -> str:
        return f"{self.user_id}: {self.key}"
