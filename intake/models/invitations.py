"""Invitations: links that staff create, which allow registration while it is by invitation."""

import hashlib
import secrets
from datetime import datetime, timedelta

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F
from django.utils import timezone

DEFAULT_DAYS = 7
LONGEST_DAYS = 365
MOST_USES = 10_000


def new_secret() -> str:
    return secrets.token_urlsafe(24)


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
