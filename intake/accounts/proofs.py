"""Tracks when the user of a session last proved their identity, and asks again for sensitive actions."""

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from allauth.account.adapter import get_adapter
from allauth.core.exceptions import ReauthenticationRequired
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from core.errors import AuthenticationRequired
from intake.accounts.sessions import BY_HEADER

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
