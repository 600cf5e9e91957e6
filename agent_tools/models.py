"""The models of access: tokens, and the agents connected by OAuth."""

import hashlib
import secrets
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils.translation import gettext_noop as _

from core.ids import uuid7
from intake.models.conversations import PROJECT_LENGTH

# A secret is random and long, so its digest needs no salt and no slow hash.
secret_hash = hashlib.sha512


def default_scopes() -> list[str]:
    return ["search", "write"]


class AccessTokenManager(models.Manager["AccessToken"]):
    def issue(self, **fields: Any) -> tuple["AccessToken", str]:
        """Create a token with these fields; returns its secret too, which is stored nowhere."""
        secret = secrets.token_hex(32)
        return self.create(digest=secret_hash(secret.encode()).hexdigest(), **fields), secret


class AccessToken(models.Model):
    """The digest of a secret, with its name and its scopes."""

    digest = models.CharField(max_length=128, primary_key=True)
    # The owner recognises the token by its name; the digest is never shown.
    public_id = models.UUIDField(default=uuid7, unique=True, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="access_tokens")
    name: "models.CharField[str, str]" = models.CharField(max_length=80, blank=True, default="")
    scopes: "ArrayField[list[str], list[str]]" = ArrayField(models.CharField(max_length=16), default=default_scopes)
    # What it appends belongs to this project where the call names none. Empty: to none.
    project: "models.CharField[str, str]" = models.CharField(
        max_length=PROJECT_LENGTH, blank=True, default="", db_default=""
    )
    # Then it sees nothing but this project (`core.isolation.policies.BOUND`).
    is_bound: "models.BooleanField[bool, bool]" = models.BooleanField(default=False, db_default=False)
    # What a chat of another program leaves here: see `Keeps`.
    keeps: "models.CharField[str, str]" = models.CharField(max_length=10, default="chats", db_default="chats")
    created = models.DateTimeField(auto_now_add=True)
    expiry = models.DateTimeField(null=True, blank=True)
    # To the minute: a write for every call would cost more than it is worth.
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    # A network and not an address: enough to recognise use by another person.
    last_used_from: "models.CharField[str, str]" = models.CharField(
        max_length=64, blank=True, default="", editable=False
    )
    # By the day, of the context that it got: texts for sessions, texts for prompts, and their tokens.
    got: "models.JSONField[dict[str, list[int]], dict[str, list[int]]]" = models.JSONField(
        blank=True, default=dict, db_default={}, editable=False
    )

    objects = AccessTokenManager()

    class Meta:
        db_table = "access_tokens"

    def __str__(self) -> str:
        return self.name or str(self.public_id)


class AgentConnection(models.Model):
    """An agent that a user has connected by OAuth; its tokens are in the toolkit's tables."""

    pk = models.CompositePrimaryKey("user_id", "application_id")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="agent_connections", db_index=False
    )
    application = models.ForeignKey(
        "oauth2_provider.Application", on_delete=models.CASCADE, related_name="agent_connections"
    )
    scopes: "ArrayField[list[str], list[str]]" = ArrayField(models.CharField(max_length=16))
    created_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_from: "models.CharField[str, str]" = models.CharField(
        max_length=64, blank=True, default="", editable=False
    )

    class Meta:
        db_table = "agent_connections"

    def __str__(self) -> str:
        return f"{self.application_id} of {self.user_id}"


class TokenScope(StrEnum):
    """`search` finds and reads; `read` only reads data that its address names; `write` adds and changes.

    `delete` deletes and undoes; `chat` talks with the assistant, which finds, reads and adds; `import` imports;
    `capture` appends to the sessions of agents and reads nothing. It follows from no other scope, and none from it.
    """

    SEARCH = "search"
    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    CHAT = "chat"
    IMPORT = "import"
    CAPTURE = "capture"


class Keeps(StrEnum):
    """What is kept of the requests of other programs: people's chats, also those of agents with tools, or nothing."""

    CHATS = "chats"
    EVERYTHING = "everything"
    NOTHING = "nothing"


ALL_SCOPES = frozenset(TokenScope)
# The default scopes, which an agent needs.
DEFAULT_SCOPES = frozenset({TokenScope.SEARCH, TokenScope.WRITE})
# They reach further than one project.
NEVER_BOUND = frozenset({TokenScope.DELETE, TokenScope.IMPORT})
# The description of each scope for its user.
MEANINGS = {
    TokenScope.SEARCH: _("Search: find and read what I said and stored"),
    TokenScope.READ: _("Read: open a conversation, note or log, without searching"),
    TokenScope.WRITE: _("Write: add to my memory, and change it"),
    TokenScope.DELETE: _("Delete: remove what I said and stored, for good"),
    TokenScope.CHAT: _("Chat: talk with the assistant, which searches my memory and adds to it"),
    TokenScope.IMPORT: _("Import: bring my history along from other products"),
    TokenScope.CAPTURE: _("Capture: add what I say to agents, and read nothing"),
}
