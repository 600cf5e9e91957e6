"""Lists a user's sessions and ends them, and knows when their identity was last proved.

When an address is confirmed for the first time, everything of the account that other sessions made ends: sessions,
tokens, apps, second factors, connected services.
"""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress
from allauth.core import context
from allauth.core.exceptions import ReauthenticationRequired
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.dispatch import Signal
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from django.utils.dateparse import parse_datetime

from core.errors import AuthenticationRequired, NotFound
from intake.accounts import activity, devices
from intake.accounts.identity import SessionStore
from intake.models import Activity, Session, User
from intake.models.sessions import DEVICE, LOGGED_IN_AT, SessionDigest

# So many characters of a digest identify a session among a user's own.
NAME_LENGTH = 16
MOST_LISTED = 100

# Sent with `user` to end all other access of the user, tokens and apps, except the `kept` ones (`made`).
access_ended = Signal()

# The session's keys for the account that was registered in it, and for the access that was made in it.
REGISTERED = "recollect.registered"
MADE = "recollect.made"
MOST_MADE = 200
# Of a session that a proxy's header began (`intake.accounts.login_header`).
BY_HEADER = "recollect.by_header"


def list_sessions(*, user: User, current: str | None) -> list[dict[str, Any]]:
    """The current session first, then by last use. `name` is no secret.

    `current`: the key of the requesting session.
    """
    this = SessionDigest.of(current) if current else None
    rows = Session.objects.filter(user=user, expire_date__gt=timezone.now()).order_by("-last_used_at")[:MOST_LISTED]
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


def end_access(*, user: User, kept: frozenset[str] = frozenset()) -> None:
    """End every token and app that acts for this user, except those that `made` names."""
    access_ended.send(User, user=user, kept=kept)


# The first proof of an address


def made(kind: str, key: object) -> str:
    """The name of a token, an app, a factor or a service in the session that made it."""
    return f"{kind}:{key}"


def note_made(user: User, name: str) -> None:
    """Remember in the current session of this user that it made this, until the account's address is proved."""
    request = context.request
    if request is None or not is_session_of(request, user) or has_proved_address(user):
        return
    request.session[MADE] = [*request.session.get(MADE, [])[-MOST_MADE:], name]


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


# --- Tracks when the user of a session last proved their identity, and asks again for sensitive actions ---
# Every log-in is a proof, and so is confirming with a password, a code or a passkey. Actions that change an account
# permanently, or give access to it, require a proof that is not older than `settings.ACCOUNT_REAUTHENTICATION_TIMEOUT`.

ProvingView = TypeVar("ProvingView", bound=Callable[..., Any])

PROVED_AT = "recollect.proved_at"
CONFIRM_FIRST = "Confirm that it is you at /settings/account/confirm/, then try again."


def note(request: HttpRequest) -> None:
    request.session[PROVED_AT] = int(time.time())


def is_recent(request: HttpRequest) -> bool:
    if settings.LOGIN_HEADER and request.session.get(BY_HEADER):
        # The proxy proves the person with every request; there may be no password to ask for.
        return True
    proved_at = request.session.get(PROVED_AT, 0)
    return bool(time.time() - proved_at < settings.ACCOUNT_REAUTHENTICATION_TIMEOUT)


def require_recent_proof(request: HttpRequest) -> None:
    """Raises the exception for which django-allauth shows the proof page; it keeps the submitted form."""
    if not is_recent(request):
        if not get_adapter().get_reauthentication_methods(request.user):
            raise PermissionDenied
        raise ReauthenticationRequired


def requires_recent_proof(
    *, methods: tuple[str, ...] = ("GET", "HEAD", "POST")
) -> Callable[[ProvingView], ProvingView]:
    """For a page: asks for a proof first, then continues with the original request, including its form."""

    def decorator(view: ProvingView) -> ProvingView:
        @wraps(view)
        def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            if request.method in methods:
                require_recent_proof(request)
            return view(request, *args, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorator


def refuse_without_recent_proof(request: Any) -> None:
    """For the API with a session; a token is not a session. Raises `AuthenticationRequired`."""
    if request.auth is None and not is_recent(request):
        raise AuthenticationRequired(CONFIRM_FIRST)
