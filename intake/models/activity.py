"""What an account keeps beside its chats: the audit log, and preferences for answers.

The audit log of an account: its owner reads it, and the web process can only add to it.
"""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from core.ids import uuid7
from intake.models.conversations import MODEL_NAME_LENGTH, OwnedQuerySet
from intake.models.users import owner

DEVICE_LENGTH = 60


class Activity(models.TextChoices):
    """The kinds of entries. The account's owner reads the labels."""

    LOGGED_IN = "logged_in", _("Logged in")
    LOGIN_FAILED = "login_failed", _("Log-in with a wrong password")
    CODE_FAILED = "code_failed", _("Wrong code of a second factor")
    LOGGED_OUT = "logged_out", _("Logged out")
    SESSION_ENDED = "session_ended", _("Session ended on another device")
    PASSWORD_CHANGED = "password_changed", _("Password changed")
    PASSWORD_RESET = "password_reset", _("Password reset by email")
    EMAIL_ADDED = "email_added", _("New email address asked for")
    EMAIL_REMOVED = "email_removed", _("Unconfirmed email address withdrawn")
    EMAIL_CONFIRMED = "email_confirmed", _("Email address confirmed")
    EMAIL_CHANGED = "email_changed", _("Email address changed")
    FACTOR_ADDED = "factor_added", _("Passkey or second factor added")
    FACTOR_REMOVED = "factor_removed", _("Passkey or second factor removed")
    FACTOR_RESET = "factor_reset", _("Recovery codes made")
    SERVICE_CONNECTED = "service_connected", _("Other service connected, to log in by")
    SERVICE_REMOVED = "service_removed", _("Other service disconnected")
    TOKEN_MADE = "token_made", _("Token made")
    TOKEN_REVOKED = "token_revoked", _("Token revoked")
    AGENT_CONNECTED = "agent_connected", _("Agent connected")
    AGENT_REMOVED = "agent_removed", _("Agent disconnected")
    EXPORTED = "exported", _("Data downloaded")
    IMPORT_STARTED = "import_started", _("Import started")
    IMPORT_UNDONE = "import_undone", _("Import undone")
    CHAT_DELETED = "chat_deleted", _("Chat deleted")
    TURN_DELETED = "turn_deleted", _("Message deleted, with its answer")
    MEMORY_DELETED = "memory_deleted", _("Note, log or record deleted")
    STAFF_LOOKED = "staff_looked", _("Staff looked at your index from outside, without its texts")
    STAFF_CHANGED = "staff_changed", _("Staff changed your account")


class ActivityEntry(models.Model):
    """Written once: the web role may add and read, staff may add, and a worker removes entries older than a year.

    Contains no user's text. `count`: the number of affected items. `device`: as in the list of sessions.
    """

    pk = models.CompositePrimaryKey("user_id", "id")
    id = models.UUIDField(default=uuid7, editable=False)
    # The database deletes the entries with their account: the web role may delete none.
    user = owner(models.DO_NOTHING)
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
            # For the sweep: rows are stored in the order in which they were added.
            BrinIndex(fields=["at"], name="idx_intake_activity_age"),
        ]

    def __str__(self) -> str:
        return f"{self.what} of user {self.user_id}"


class ChatPreferences(models.Model):
    """One row per user, created with the first choice. Separate from the user's row, which staff may read."""

    user = owner()
    model = models.CharField(max_length=MODEL_NAME_LENGTH, blank=True, default="")
    how_to_answer = models.TextField(blank=True, default="")
    # The parts of the home page that this person does not want to see, with blanks between them.
    hidden_at_home = models.CharField(max_length=100, blank=True, default="", db_default="")
    # Whether the pages that answers read on the web stay with their chats.
    keeps_pages = models.BooleanField(default=True, db_default=True)
    # The lines that agents do not get, by their digests (`agent_tools.tools.context`).
    left_out: "ArrayField[list[str], list[str]]" = ArrayField(
        models.CharField(max_length=32), blank=True, default=list, db_default=[]
    )

    # The tokens of the readings of ended chats, by day (`memory.ended_chats`).
    reading_tokens = models.JSONField(default=dict, db_default={}, blank=True, editable=False)

    objects = OwnedQuerySet["ChatPreferences"].as_manager()

    class Meta:
        db_table = "intake_chat_preferences"
        verbose_name_plural = "chat preferences"
        constraints = [models.UniqueConstraint(fields=["user"], name="intake_chat_preferences_once")]

    def __str__(self) -> str:
        return f"of user {self.user_id}"
