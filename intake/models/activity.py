"""What happened to an account: an audit log that its owner reads, and that nothing of the web process can change."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.utils import timezone

from core.ids import uuid7
from intake.models.conversations import OwnedQuerySet
from intake.models.users import User

DEVICE_LENGTH = 60


class Activity(models.TextChoices):
    """What is noted. The labels are read by the account's owner."""

    LOGGED_IN = "logged_in", "Logged in"
    LOGIN_FAILED = "login_failed", "Log-in with a wrong password"
    CODE_FAILED = "code_failed", "Wrong code of a second factor"
    LOGGED_OUT = "logged_out", "Logged out"
    SESSION_ENDED = "session_ended", "Session ended on another device"
    PASSWORD_CHANGED = "password_changed", "Password changed"
    PASSWORD_RESET = "password_reset", "Password reset by email"
    EMAIL_ADDED = "email_added", "New email address asked for"
    EMAIL_REMOVED = "email_removed", "Unconfirmed email address withdrawn"
    EMAIL_CHANGED = "email_changed", "Email address changed"
    FACTOR_ADDED = "factor_added", "Passkey or second factor added"
    FACTOR_REMOVED = "factor_removed", "Passkey or second factor removed"
    FACTOR_RESET = "factor_reset", "Recovery codes made anew"
    SERVICE_CONNECTED = "service_connected", "Other service connected, to log in by"
    SERVICE_REMOVED = "service_removed", "Other service disconnected"
    TOKEN_MADE = "token_made", "Token made"
    TOKEN_REVOKED = "token_revoked", "Token revoked"
    AGENT_CONNECTED = "agent_connected", "Agent connected"
    AGENT_REMOVED = "agent_removed", "Agent disconnected"
    EXPORTED = "exported", "Data downloaded"
    IMPORT_STARTED = "import_started", "Import started"
    IMPORT_UNDONE = "import_undone", "Import undone"
    CHAT_DELETED = "chat_deleted", "Chat deleted"
    TURN_DELETED = "turn_deleted", "Message deleted, with its answer"
    MEMORY_DELETED = "memory_deleted", "Note, log or record deleted"
    STAFF_LOOKED = "staff_looked", "Staff looked at your index from outside, without its texts"
    STAFF_CHANGED = "staff_changed", "Staff changed your account"


class ActivityEntry(models.Model):
    """Written once: the web role may add and read, staff may add, and a worker removes what is older than a year.

    No text of anybody's is in it. `count`: of how many things at once. `device`: as the list of sessions says it.
    """

    pk = models.CompositePrimaryKey("user_id", "id")
    id = models.UUIDField(default=uuid7, editable=False)
    # The database takes an account's entries along: the web role may delete none.
    user = models.ForeignKey(User, on_delete=models.DO_NOTHING, db_index=False, db_constraint=False)
    at = models.DateTimeField(default=timezone.now, editable=False)
    what = models.CharField(max_length=24, choices=Activity)
    count = models.PositiveIntegerField(default=1)
    device = models.CharField(max_length=DEVICE_LENGTH, blank=True, default="")

    objects = OwnedQuerySet["ActivityEntry"].as_manager()

    class Meta:
        db_table = "intake_activity"
        verbose_name_plural = "entries of activity"
        indexes = [
            models.Index(fields=["user", "-at", "-id"], name="idx_intake_activity"),
            # For the sweep: rows lie in the order in which they were added.
            BrinIndex(fields=["at"], name="idx_intake_activity_age"),
        ]

    def __str__(self) -> str:
        return f"{self.what} of user {self.user_id}"
