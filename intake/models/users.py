"""Users, visitors and invitations.

The user model: an account with email and password, or a visitor with only a session.
"""

import hashlib
import secrets
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F
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
        ]

    def __str__(self) -> str:
        return self.email or f"Visitor {self.pk}"

    def set_password(self, raw_password: str | None) -> None:
        """Raises `RateLimited`, like `check_password`, when too many hashes are waiting."""
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


# --- Invitations: links that staff create, which allow registration while it is by invitation ---

DEFAULT_DAYS = 7
LONGEST_DAYS = 365
MOST_USES = 10_000
SECRET_BYTES = 24


def new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> str:
    """The secret is random and long, so its digest needs no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


class InvitationQuerySet(models.QuerySet["Invitation"]):
    def with_secret(self, secret: str) -> "InvitationQuerySet":
        return self.filter(digest=digest_of(secret))

    def open(self, *, now: datetime) -> "InvitationQuerySet":
        return self.filter(expires_at__gt=now, used__lt=F("uses"))


class InvitationManager(models.Manager.from_queryset(InvitationQuerySet)):  # type: ignore[misc]
    def issue(self, *, note: str = "", uses: int = 1, days: int = DEFAULT_DAYS) -> tuple["Invitation", str]:
        """Create an invitation; returns its secret too, which is stored nowhere."""
        secret = new_secret()
        invitation = self.create(
            digest=digest_of(secret),
            note=note,
            uses=uses,
            expires_at=timezone.now() + timedelta(days=days),
        )
        return invitation, secret

    def is_open(self, secret: str, *, now: datetime) -> bool:
        is_open: bool = self.with_secret(secret).open(now=now).exists()
        return is_open

    def take(self, secret: str, *, now: datetime) -> bool:
        """Use an invitation once, if it is still open: one statement, so that two requests cannot both take the last
        use.
        """
        taken: int = self.with_secret(secret).open(now=now).update(used=F("used") + 1)
        return taken == 1


class Invitation(models.Model):
    """An invitation with its number of uses and its expiry. It keeps only the digest of a link's secret."""

    digest = models.CharField(max_length=64, unique=True, editable=False)
    note = models.CharField(max_length=200, blank=True, default="", help_text="Whom it is for. Shown to staff alone.")
    uses = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(MOST_USES)],
        help_text="How many people may register by it.",
    )
    used = models.PositiveSmallIntegerField(default=0, editable=False)
    expires_at = models.DateTimeField()
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = InvitationManager()

    class Meta:
        db_table = "intake_invitations"

    def __str__(self) -> str:
        return self.note or f"Invitation {self.pk}"
