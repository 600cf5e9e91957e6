"""Users, visitors and invitations, and the settings of the installation that staff keep.

The user model: an account with email and password, or a visitor with only a session.
"""

import asyncio
import base64
import hashlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cryptography.fernet import Fernet, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import DatabaseError, InterfaceError, models
from django.db.models import F
from django.db.models.functions import Lower
from django.utils import timezone

from core.isolation.acting import acting_as_staff
from intake import passwords

logger = logging.getLogger(__name__)


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
        return self.with_secret(secret).open(now=now).exists()

    def take(self, secret: str, *, now: datetime) -> bool:
        """Use an invitation once, if it is still open: one statement, so that two requests cannot both take the last
        use.
        """
        return self.with_secret(secret).open(now=now).update(used=F("used") + 1) == 1


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

    objects = InvitationQuerySet.as_manager()

    class Meta:
        db_table = "intake_invitations"

    def __str__(self) -> str:
        return self.note or f"Invitation {self.pk}"


# --- Settings of the installation that staff change in the browser; the environment overrides them ---

REGISTRATION, VISITORS, MODELS = "registration", "visitors", "models"
LANGUAGES, RETENTION, INSTRUCTIONS = "languages", "retention_days", "instructions"
# Of the installation by name (`turns`, `bytes`, `file_bytes`), and by user id of those who have their own.
QUOTAS, QUOTAS_OF_USERS = "quotas", "quotas_of_users"
# When this process read them last, by the machine's clock, and what there was, by name.
_kept: list[tuple[float, dict[str, Any]]] = [(-1.0e9, {})]
_lock = threading.Lock()


class InstallationSetting(models.Model):
    """One setting. Every role reads them, to know what applies; only staff write them. Secrets in them are sealed."""

    name = models.CharField(max_length=40, primary_key=True)
    value = models.JSONField()
    changed_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        db_table = "installation_settings"

    def __str__(self) -> str:
        return self.name


def kept_setting(name: str, default: Any = None, *, reads: bool = True) -> Any:
    """The value that staff have kept, as of `KEPT_SETTINGS_SECONDS` ago at most, so that all processes agree soon.

    An event loop must not wait for the database: there it is the value of the last request, as without `reads`.
    """
    with _lock:
        read_at, values = _kept[0]
        is_due = reads and time.monotonic() - read_at >= settings.KEPT_SETTINGS_SECONDS and not _is_in_event_loop()
        if is_due:
            # Only one thread reads.
            _kept[0] = (time.monotonic(), values)
    if is_due:
        try:
            read_kept_settings()
        except (DatabaseError, InterfaceError) as error:
            # A page that needs no database is shown without one.
            logger.warning("The settings that staff keep cannot be read (%s)", type(error).__name__)
    return _kept[0][1].get(name, default)


def forget_kept_settings() -> None:
    """Begin as a new process does."""
    _kept[0] = (-1.0e9, {})


def read_kept_settings() -> None:
    """Read all of them now."""
    _kept[0] = (time.monotonic(), dict(InstallationSetting.objects.values_list("name", "value")))


def keep_setting(name: str, change: Callable[[Any], Any]) -> None:
    """Replace a setting by `change` of its present value, which is empty before the first. The row is locked meanwhile.

    Only for requests of staff.
    """
    with acting_as_staff():
        InstallationSetting.objects.get_or_create(name=name, defaults={"value": ""})
        row = InstallationSetting.objects.select_for_update().get(name=name)
        row.value, row.changed_at = change(row.value), timezone.now()
        row.save(update_fields=["value", "changed_at"])
    read_kept_settings()


def may_visitors_chat() -> bool:
    if settings.VISITORS is not None:
        return bool(settings.VISITORS)
    return bool(kept_setting(VISITORS, default=True))


def languages_offered(*, reads: bool = True) -> list[tuple[str, str]]:
    """Code and name of the languages in which pages are shown; never none."""
    chosen = kept_setting(LANGUAGES, reads=reads) or ()
    return [each for each in settings.LANGUAGES if each[0] in chosen] or list(settings.LANGUAGES)


def retention_days() -> int:
    return int(kept_setting(RETENTION, default=0) if settings.RETENTION_DAYS is None else settings.RETENTION_DAYS)


def default_instructions() -> str:
    return str(kept_setting(INSTRUCTIONS, default=""))


def fixed_quota(name: str) -> int | None:
    """By the environment; None if staff choose it. `name` is one of `turns`, `bytes`, `file_bytes`."""
    fixed: int | None = getattr(settings, f"QUOTA_{'FILE_BYTES' if name == 'file_bytes' else name.upper()}")
    return fixed


def quota_of_everybody(name: str) -> int:
    """0 is no quota."""
    fixed = fixed_quota(name)
    return int((kept_setting(QUOTAS) or {}).get(name, 0)) if fixed is None else fixed


def own_quotas(user_id: int | None) -> dict[str, int]:
    """Those that staff have set for this person alone."""
    return dict((kept_setting(QUOTAS_OF_USERS) or {}).get(str(user_id), {}))


def quota_for(user_id: int | None, name: str) -> int:
    """0 is no quota."""
    return own_quotas(user_id).get(name, quota_of_everybody(name))


def cipher_for(purpose: str) -> MultiFernet:
    """Seals what only this installation may read; it also opens what a key in SECRET_KEY_FALLBACKS has sealed."""
    return MultiFernet(
        [Fernet(_key_for(purpose, secret)) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    )


@lru_cache(maxsize=32)
def _key_for(purpose: str, secret: str) -> bytes:
    derived = HKDF(SHA256(), length=32, salt=None, info=f"recollect: {purpose}".encode()).derive(secret.encode())
    return base64.urlsafe_b64encode(derived)


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
