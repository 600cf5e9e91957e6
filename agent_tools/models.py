"""What agents leave in the database: tokens that prove whose memory they may search."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from knox.models import AbstractAuthToken

from core.ids import uuid7


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
