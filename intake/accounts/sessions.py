"""Lists the sessions of a user and ends them."""

from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth import HASH_SESSION_KEY
from django.dispatch import Signal
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.dateparse import parse_datetime

from core.errors import NotFound
from intake.accounts import activity, devices
from intake.identity import SessionStore
from intake.models import Activity, Session, User
from intake.models.sessions import DEVICE, LOGGED_IN_AT, SessionDigest

# So many characters of a digest identify a session among a user's own.
NAME_LENGTH = 16
MOST_LISTED = 100

# Sent with `user` to end all other access of the user: tokens, apps.
access_ended = Signal()


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """The data of a session that its owner sees; `name` is not a secret."""

    name: str
    device: str
    logged_in_at: datetime | None
    last_used_at: datetime
    is_this_one: bool


def list_sessions(*, user: User, current: str | None) -> list[SessionInfo]:
    """The current session first, then by last use. `current` is the key of the requesting session."""
    this = SessionDigest.of(current) if current else None
    rows = Session.objects.filter(user=user, expire_date__gt=timezone.now()).order_by("-last_used_at")[:MOST_LISTED]
    shown = [_info(row, is_this_one=row.session_key == this) for row in rows if _is_good(row, user)]
    return sorted(shown, key=lambda each: not each.is_this_one)


def end_session(*, user: User, name: str) -> None:
    """Raises `NotFound` if the session is not one of the user's."""
    for row in Session.objects.filter(user=user).only("session_key"):
        if name and row.session_key[:NAME_LENGTH] == name:
            row.delete()
            activity.note(user, Activity.SESSION_ENDED)
            return
    raise NotFound


def end_other_sessions(*, user: User, current: str | None) -> int:
    """End all sessions except this key's and return their number. Their streams end within a few seconds."""
    others = Session.objects.filter(user=user)
    if current is not None:
        others = others.exclude(session_key=current)
    ended, _ = others.delete()
    activity.note(user, Activity.SESSION_ENDED, count=ended)
    return ended


def end_access(*, user: User) -> None:
    """End every token and app that acts for this user."""
    access_ended.send(User, user=user)


def _is_good(row: Session, user: User) -> bool:
    """A password change elsewhere makes a session invalid but leaves its row."""
    data = SessionStore().decode(row.session_data)
    return constant_time_compare(data.get(HASH_SESSION_KEY, ""), user.get_session_auth_hash())


def _info(row: Session, *, is_this_one: bool) -> SessionInfo:
    data = SessionStore().decode(row.session_data)
    return SessionInfo(
        name=row.session_key[:NAME_LENGTH],
        device=data.get(DEVICE, devices.UNKNOWN),
        logged_in_at=parse_datetime(data.get(LOGGED_IN_AT, "")),
        last_used_at=row.last_used_at,
        is_this_one=is_this_one,
    )
