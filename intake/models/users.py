"""The user model: an account with email and password, or a visitor with only a session."""

from datetime import UTC, date, datetime, tzinfo
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from intake import passwords


def local_time(at: datetime, zone: tzinfo) -> datetime:
    """When a moment is for a reader in this zone: the one place where a stored moment becomes somebody's day and hour.

    Pages do it by the zone that `LanguageMiddleware` activates for the user. A moment at the ends of the calendar stays
    in UTC.
    """
    try:
        return at.astimezone(zone)
    except OverflowError:
        return at.astimezone(UTC)


def day_in_words(day: date) -> str:
    """As answers and tools write it in English: 3 February 2026."""
    return f"{day.day} {day:%B} {day.year}"


class UserManager(BaseUserManager["User"]):
    @classmethod
    def normalize_email(cls, email: str | None) -> str:
        """Lower case: two spellings of one address are one user."""
        return (email or "").strip().lower()

    def get_by_natural_key(self, username: str | None) -> "User":
        return self.get(email=self.normalize_email(username))

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> "User":
        user = self.model(email=self.normalize_email(email), **fields)
        user.set_password(password)
        user.save(using=self.db)
        return user

    def create_visitor(self) -> "User":
        """A user before registration: without an email and with an unusable password."""
        visitor = self.model(email=None, is_visitor=True)
        visitor.set_unusable_password()
        visitor.save(using=self.db)
        return visitor

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> "User":
        return self.create_user(email, password, **{**fields, "is_staff": True, "is_superuser": True})


class User(AbstractBaseUser, PermissionsMixin):
    email = models.EmailField("email address", unique=True, null=True)
    is_visitor = models.BooleanField(
        "visitor", default=False, editable=False, help_text="Talks in a browser, and has not registered."
    )
    time_zone = models.CharField(max_length=64, default="UTC")
    # The language of pages; empty for the browser's.
    language = models.CharField(max_length=16, blank=True, default="")
    titles_by_model = models.BooleanField(
        "titles by the model", default=True, help_text="The language model makes a chat's title after its first answer."
    )
    # Since when chats that have ended are read for things worth keeping (`memory.ended_chats`). NULL: never, unless the
    # person says so. Here, so that a task finds those who agreed without acting as anybody.
    proposes_since = models.DateTimeField(null=True, blank=True, editable=False)
    is_staff = models.BooleanField(
        "staff", default=False, help_text="May inspect embeddings in the admin, never chats."
    )
    is_active = models.BooleanField("active", default=True)
    joined_at = models.DateTimeField(default=timezone.now, editable=False)
    # The next time when their turns are checked, if turns are kept for a limited time (`intake.chats.deleting`).
    retention_due_at = models.DateTimeField(default=timezone.now, editable=False)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    objects = UserManager()

    # The project that the token of this request is bound to (`core.isolation.acting`); empty for every other caller.
    bound_to = ""
    # What the chat for which this user searches does not get, by digests (`memory.left_out`).
    left_out: frozenset[str] = frozenset()

    class Meta:
        db_table = "users"
        constraints = [
            models.UniqueConstraint(Lower("email"), name="users_email_whatever_case"),
            models.CheckConstraint(
                condition=models.Q(is_visitor=True, email=None) | models.Q(is_visitor=False, email__isnull=False),
                name="users_visit_or_have_an_email",
            ),
        ]
        indexes = [
            models.Index(fields=["joined_at"], condition=models.Q(is_visitor=True), name="idx_users_visitors"),
            models.Index(fields=["retention_due_at"], name="idx_users_retention"),
            models.Index(
                fields=["proposes_since"], condition=models.Q(proposes_since__isnull=False), name="idx_users_proposing"
            ),
        ]

    def __str__(self) -> str:
        return self.email or f"Visitor {self.pk}"

    def set_password(self, raw_password: str | None) -> None:
        if raw_password is None:
            self.set_unusable_password()
        else:
            self.password = passwords.encode(raw_password)

    def check_password(self, raw_password: str | None) -> bool:
        """Also replaces the hash of a correct password if its parameters are outdated."""
        is_right, is_outdated = passwords.verify(raw_password, self.password)
        if is_outdated:
            self.set_password(raw_password)
            self.save(update_fields=["password"])
        return is_right

    def clean(self) -> None:
        super().clean()
        self.email = UserManager.normalize_email(self.email) or None

    @property
    def zone(self) -> ZoneInfo:
        """The time zone from the account page; UTC for one that this machine does not know."""
        try:
            return ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            return ZoneInfo("UTC")

    def local_time(self, at: datetime) -> datetime:
        return local_time(at, self.zone)


def owner(on_delete: Any = models.CASCADE) -> "models.ForeignKey[User, User]":
    """The user of a personal row. Indexes begin with the column, and `delete_account` deletes without a constraint."""
    return models.ForeignKey(User, on_delete=on_delete, db_index=False, db_constraint=False)
