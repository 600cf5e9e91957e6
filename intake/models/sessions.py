"""Sessions that know their user, so that deleting an account deletes its sessions.

Only the browser's cookie contains the key. The database has its digest, so that a copy of the table gives no access.
"""

import hashlib
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar

from django.contrib.sessions.base_session import AbstractBaseSession, BaseSessionManager
from django.db import models
from django.utils import timezone

from intake.models.users import User

# The key of the session's data about its log-in.
DEVICE = "recollect.device"
LOGGED_IN_AT = "recollect.logged_in_at"

SWEPT_AT_ONCE = 1_000
USE_NOTED_EVERY = timedelta(minutes=5)


class SessionDigest(str):
    """The digest that the database has instead of a session's key."""

    @classmethod
    def of(cls, key: str) -> "SessionDigest":
        """A key is random and long, so its digest needs no salt and no slow hash."""
        return cls(hashlib.sha256(key.encode()).hexdigest())


class SessionKeyField(models.CharField):  # type: ignore[type-arg]
    """Accepts a key or a digest, stores and looks up the digest, and reads the digest."""

    def from_db_value(self, value: str | None, expression: object, connection: object) -> SessionDigest | None:
        return None if value is None else SessionDigest(value)

    def get_prep_value(self, value: Any) -> Any:
        key = super().get_prep_value(value)
        return key if key is None or isinstance(key, SessionDigest) else SessionDigest.of(key)


@lru_cache(maxsize=4096)
def _note_use(digest: SessionDigest, at: datetime) -> None:
    """Remembers digests: a key in memory could be read from a dump of the process."""
    Session.objects.filter(session_key=digest, last_used_at__lt=at).update(last_used_at=at)


class SessionManager(BaseSessionManager["Session"]):
    def note_use(self, key: str, *, now: datetime) -> None:
        """Accurate to about five minutes: a write for every page would cost more than it is worth."""
        seconds = int(now.timestamp())
        _note_use(SessionDigest.of(key), now - timedelta(seconds=seconds % int(USE_NOTED_EVERY.total_seconds())))

    def remove_expired(self, *, now: datetime) -> int:
        """A batch at a time, so that no lock is held for long; returns how many there were."""
        removed, batch = 0, SWEPT_AT_ONCE
        while batch == SWEPT_AT_ONCE:
            some = self.filter(expire_date__lt=now).order_by("expire_date").values("pk")[:SWEPT_AT_ONCE]
            batch, _ = self.filter(pk__in=list(some.values_list("pk", flat=True))).delete()
            removed += batch
        return removed


class Session(AbstractBaseSession):
    """Django's session, which names the user only in encoded data, with the user in a column."""

    session_key = SessionKeyField("session key", max_length=64, primary_key=True)
    # Without a constraint: a log-in during a deletion must fail at its next request, not while it is stored.
    user = models.ForeignKey(User, null=True, on_delete=models.CASCADE, db_constraint=False)
    last_used_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[SessionManager] = SessionManager()

    class Meta(AbstractBaseSession.Meta):
        db_table = "intake_sessions"
