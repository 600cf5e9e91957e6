"""Access tokens: how an agent proves whose memory it may search."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from knox.models import AbstractAuthToken


def default_scopes() -> list[str]:
    return ["search", "write"]


class AccessToken(AbstractAuthToken):
    """A knox token (only its digest is kept) with a name its owner gave it and what it may do."""

    name: "models.CharField[str, str]" = models.CharField(max_length=80, blank=True, default="")
    scopes: "ArrayField[list[str], list[str]]" = ArrayField(models.CharField(max_length=16), default=default_scopes)

    class Meta:
        db_table = "access_tokens"
