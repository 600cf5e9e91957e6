"""Tools from elsewhere: the servers of a person, what was allowed of them, and the turns that wait for an answer."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import models
from django.utils import timezone

from core.ids import uuid7
from intake.models.conversations import OwnedQuerySet
from intake.models.users import User

NAME_LENGTH = 40
ADDRESS_LENGTH = CLIENT_ID_LENGTH = 500
# How long a turn waits for its person.
WAITS_FOR = timedelta(days=1)


class ToolServer(models.Model):
    """An MCP server that a person has added. `tools`: as it listed them when it was last asked; `sealed`: the key, or
    with a `client_id` the secret of that client. `servers_of` fills in the others, of its person.
    """

    wants_login = wants_wider = is_connected = False

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # The migration creates the foreign keys of these three tables, which cascade in the database.
    user = models.ForeignKey(User, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    name = models.CharField(max_length=NAME_LENGTH)
    address = models.CharField(max_length=ADDRESS_LENGTH)
    header = models.CharField(max_length=60, blank=True, default="")
    sealed = models.TextField(blank=True, default="")
    client_id = models.CharField(max_length=CLIENT_ID_LENGTH, blank=True, default="", db_default="")
    tools = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OwnedQuerySet["ToolServer"].as_manager()

    class Meta:
        db_table = "intake_tool_servers"
        constraints = [
            models.UniqueConstraint(fields=["user", "address"], name="intake_tool_servers_once"),
        ]

    def __str__(self) -> str:
        return self.name


class ToolLogin(models.Model):
    """A person's log-in at a server, by OAuth, in the format of `chat.agent.logins`.

    `sealed`: the tokens and what renews them; empty until the person has connected, and once a renewal was refused.
    `pending`: sealed too, what an open log-in needs, until `pending_until`; `state`: the digest by which it returns.
    Without a state, `pending` is the wider scope that the server asks for.
    `renewing_until`: one process renews the tokens.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    address = models.CharField(max_length=ADDRESS_LENGTH)
    sealed = models.TextField(blank=True, default="")
    pending = models.TextField(blank=True, default="")
    pending_until = models.DateTimeField(null=True)
    state = models.CharField(max_length=64, blank=True, default="")
    renewing_until = models.DateTimeField(null=True)
    connected_at = models.DateTimeField(null=True)

    objects = OwnedQuerySet["ToolLogin"].as_manager()

    class Meta:
        db_table = "intake_tool_logins"
        constraints = [models.UniqueConstraint(fields=["user", "address"], name="intake_tool_logins_once")]

    def __str__(self) -> str:
        return self.address

    @property
    def wants_wider(self) -> bool:
        return bool(self.pending) and not self.state


class ToolConsent(models.Model):
    """A person allowed a tool at an address, as it was described then (`fingerprint`): in one chat, or without one
    always.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    address = models.CharField(max_length=ADDRESS_LENGTH)
    tool = models.CharField(max_length=200)
    fingerprint = models.CharField(max_length=64)
    conversation_id = models.UUIDField(null=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = OwnedQuerySet["ToolConsent"].as_manager()

    class Meta:
        db_table = "intake_tool_consents"
        indexes = [models.Index(fields=["user", "address", "tool"], name="idx_itc_tool")]

    def __str__(self) -> str:
        return f"{self.tool} at {self.address}"


class PausedTurn(models.Model):
    """What a turn with the status `waiting` needs to go on, in the format of `chat.agent.loop`.

    `calls`: those that wait, by the ids that the turn has, each with `name`, `input`, `why` and its `decision`, if any.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    turn_id = models.BigIntegerField()
    calls = models.JSONField()
    state = models.JSONField()
    until = models.DateTimeField()

    objects = OwnedQuerySet["PausedTurn"].as_manager()

    class Meta:
        db_table = "intake_paused_turns"
        constraints = [models.UniqueConstraint(fields=["user", "turn_id"], name="intake_paused_turns_once")]
        indexes = [models.Index(fields=["until"], name="idx_ipt_until")]

    def __str__(self) -> str:
        return f"turn {self.turn_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The end of an attempt that waits: as a `PausedTurn` keeps it."""

    calls: dict[str, dict[str, Any]]
    state: dict[str, Any]
