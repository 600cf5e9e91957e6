"""Lists a user's sessions and ends them.

When an address is confirmed for the first time, everything of the account that other sessions made ends: sessions,
tokens, apps, second factors, connected services.
"""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.core import context
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth import HASH_SESSION_KEY
from django.db import transaction
from django.dispatch import Signal
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.dateparse import parse_datetime

from core.errors import NotFound
from intake.accounts import activity, devices
from intake.accounts.identity import SessionStore
from intake.models import Activity, Session, User
from intake.models.sessions import DEVICE, LOGGED_IN_AT, SessionDigest

# So many characters of a digest identify a session among a user's own.
NAME_LENGTH = 16

# Sent with `user` to end all other access of the user, tokens and apps, except the `kept` ones (`made`).
access_ended = Signal()

# The session's keys for the account that was registered in it, and for the access that was made in it.
REGISTERED = "recollect.registered"
MADE = "recollect.made"
# Of a session that a proxy's header began (`intake.accounts.login_header`).
BY_HEADER = "recollect.by_header"


def list_sessions(*, user: User, current: str | None) -> list[dict[str, Any]]:
    """The current session first, then by last use. `name` is no secret.

    `current`: the key of the requesting session.
    """
    this = SessionDigest.of(current) if current else None
    rows = Session.objects.filter(user=user, expire_date__gt=timezone.now()).order_by("-last_used_at")[:100]
    shown = [_info(row, is_this_one=row.session_key == this) for row in rows if _is_good(row, user)]
    return sorted(shown, key=lambda each: not each["is_this_one"])


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
    access_ended.send(User, user=user, kept=frozenset())


# The first proof of an address


def made(kind: str, key: object) -> str:
    """The name of a token, an app, a factor or a service in the session that made it."""
    return f"{kind}:{key}"


def note_made(user: User, name: str) -> None:
    """Remember in the current session of this user that it made this, until the account's address is proved."""
    request = context.request
    if request is None or not is_session_of(request, user) or has_proved_address(user):
        return
    request.session[MADE] = [*request.session.get(MADE, [])[-200:], name]


def is_session_of(request: HttpRequest, user: User) -> bool:
    """Whether this browser is logged in to the account, or registered it and waits to be let in."""
    if request.session.get(REGISTERED) == user.pk:
        return True
    return bool(request.user.is_authenticated and request.user.pk == user.pk)


def has_proved_address(user: User) -> bool:
    return bool(EmailAddress.objects.filter(user=user, verified=True).exists())


def end_what_came_before(request: HttpRequest, user: User) -> bool:
    """End every session, token, app, second factor and connected service that this session did not make.

    Called at the first proof of an address: until then somebody else may have registered it, and would keep their way
    in. The data stays. Returns whether anything ended.
    """
    is_own = is_session_of(request, user)
    kept = frozenset(request.session.get(MADE, ())) if is_own else frozenset()
    with transaction.atomic():
        others = Session.objects.filter(user=user)
        if is_own and request.session.session_key is not None:
            others = others.exclude(session_key=request.session.session_key)
        sessions, _ = others.delete()
        factors = _end_unless_kept(Authenticator, user, "factor", kept)
        services = _end_unless_kept(SocialAccount, user, "service", kept)
        # An address that somebody added beside the proved one would replace it at its own confirmation.
        EmailAddress.objects.filter(user=user, verified=False).exclude(email=user.email).delete()
    activity.note(user, Activity.SESSION_ENDED, count=sessions)
    activity.note(user, Activity.FACTOR_REMOVED, count=factors)
    activity.note(user, Activity.SERVICE_REMOVED, count=services)
    ended = [count for _, count in access_ended.send(User, user=user, kept=kept)]
    return bool(sessions or factors or services or any(ended))


def _end_unless_kept(model: Any, user: User, kind: str, kept: frozenset[str]) -> int:
    doomed = [pk for pk in model.objects.filter(user=user).values_list("pk", flat=True) if made(kind, pk) not in kept]
    model.objects.filter(pk__in=doomed).delete()
    return len(doomed)


def _is_good(row: Session, user: User) -> bool:
    """A password change elsewhere makes a session invalid but leaves its row."""
    data = SessionStore().decode(row.session_data)
    return constant_time_compare(data.get(HASH_SESSION_KEY, ""), user.get_session_auth_hash())


def _info(row: Session, *, is_this_one: bool) -> dict[str, Any]:
    data = SessionStore().decode(row.session_data)
    return {
        "name": row.session_key[:NAME_LENGTH],
        "device": data.get(DEVICE, devices.UNKNOWN),
        "logged_in_at": parse_datetime(data.get(LOGGED_IN_AT, "")),
        "last_used_at": row.last_used_at,
        "is_this_one": is_this_one,
    }
