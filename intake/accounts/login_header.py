"""Logs a person in whom a proxy names in a header (`LOGIN_HEADER`), as Authelia or Tailscale do.

Only connections from the addresses in `LOGIN_HEADER_FROM` count: anybody can send a header. What counts is the peer of
the connection, and never X-Forwarded-For. `config/bodies.py` has dropped headers whose names have underscores, which
would pass for the one with hyphens.
"""

import ipaddress
import logging
import re
import time
from collections.abc import Callable
from functools import lru_cache

from allauth.account.adapter import get_adapter
from allauth.account.models import EmailAddress
from django.conf import settings
from django.contrib.auth import logout
from django.core.checks import CheckMessage, Error, register
from django.core.exceptions import MiddlewareNotUsed, ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from core.errors import InvalidInput
from intake.accounts import registration, sessions, visitors
from intake.accounts.adapters import INVITATION
from intake.accounts.identity import VISITOR, is_registered, tell_what_came_along, visitor_of
from intake.accounts.sessions import BY_HEADER
from intake.models import User

logger = logging.getLogger(__name__)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

NAME = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*")
# Every browser sends them, or they mean something else here.
NO_NAMES = ("authorization", "cookie", "host", "origin", "referer", "user-agent", "x-forwarded-for", "x-request-id")
LONGEST_ADDRESS = User._meta.get_field("email").max_length or 0
# A proxy that is misconfigured sends the same with each request: one line of each kind a minute.
COMPLAIN_SECONDS = 60

UNTRUSTED = "The header %s came from an address that is not in LOGIN_HEADER_FROM, and was ignored"
NO_ADDRESS = "The header %s does not hold one email address, and was ignored"
NO_ACCOUNT = "The header %s names a person without an account, who may not register here"
NOT_ACTIVE = "The header %s names a person whose account is switched off"


def login_by_header(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """The middleware, which is none without `LOGIN_HEADER`. A call of the API with a token is not a browser's."""
    if not settings.LOGIN_HEADER:
        raise MiddlewareNotUsed

    def middleware(request: HttpRequest) -> HttpResponseBase:
        scheme = request.headers.get("Authorization", "").strip().partition(" ")[0].lower()
        has_token = scheme in ("bearer", "token") and request.path_info.startswith(("/api/", "/mcp"))
        if not has_token:
            _follow(request, email_in_header(request))
        return get_response(request)

    return middleware


def email_in_header(request: HttpRequest) -> str:
    """The email address that a trusted proxy names; empty if there is none."""
    value = request.headers.get(settings.LOGIN_HEADER, "").strip()
    if not value:
        return ""
    if not is_trusted(request.META.get("REMOTE_ADDR") or ""):
        _complain(UNTRUSTED)
        return ""
    try:
        # Several headers of this name were joined by commas, which no address has.
        validate_email(value)
    except ValidationError:
        _complain(NO_ADDRESS)
        return ""
    if len(value) > LONGEST_ADDRESS:
        _complain(NO_ADDRESS)
        return ""
    return User.objects.normalize_email(value)


def is_trusted(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    # A socket for both families has IPv4 peers as ::ffff:192.0.2.1.
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in networks(tuple(settings.LOGIN_HEADER_FROM)))


@lru_cache(maxsize=8)
def networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Raises `ValueError` for a text that is no address and no network."""
    return tuple(ipaddress.ip_network(text.strip(), strict=False) for text in texts)


def _follow(request: HttpRequest, email: str) -> None:
    """Make the session that of the person in the header, if it is not already."""
    if is_registered(request) and email and request.user.email == email:  # type: ignore[union-attr]  # it is registered
        return
    if not email:
        # A session by header counts only beside the header: who may come in is the proxy's decision each time.
        if request.session.get(BY_HEADER):
            logout(request)
        return
    if is_registered(request):
        logout(request)
    user = _account_of(email) or _new_account(request, email)
    if user is None:
        _complain(NO_ACCOUNT)
    elif not user.is_active:
        _complain(NOT_ACTIVE)
    else:
        _log_in(request, user)


def _account_of(email: str) -> User | None:
    return User.objects.filter(email=email, is_visitor=False).first()


def _new_account(request: HttpRequest, email: str) -> User | None:
    """By the rules for other services: `REGISTRATION`, an invitation, the first person's code."""
    invitation = request.session.get(INVITATION, "")
    if registration.why_not(invitation) is not None or registration.needs_code():
        return None
    try:
        visitor = visitor_of(request)
        user, turns = visitors.register(
            visitor=visitor, email=email, password=None, time_zone="UTC", invitation=invitation
        )
    except IntegrityError:
        # Another request of the same page was faster.
        return _account_of(email)
    except InvalidInput:
        return None
    if visitor is not None:
        # The visitor's session ends with the visitor.
        logout(request)
    tell_what_came_along(request, turns)
    return user


def _log_in(request: HttpRequest, user: User) -> None:
    """Without the account's own second factor: asking for one is the proxy's work.

    The proxy has proved the address. Until it was proved, somebody else may have registered it and set its password.
    """
    if not sessions.has_proved_address(user):
        if user.has_usable_password():
            user.set_unusable_password()
            user.save(update_fields=["password"])
        sessions.end_what_came_before(request, user)
        EmailAddress.objects.update_or_create(user=user, email=user.email, defaults={"verified": True, "primary": True})
    request.META[VISITOR] = visitor_of(request)
    get_adapter(request).login(request, user)
    request.session[BY_HEADER] = True


_complained_at: dict[str, float] = {}


def _complain(sentence: str) -> None:
    """Neither the address of the sender nor that in the header is logged."""
    now = time.monotonic()
    if now - _complained_at.get(sentence, -COMPLAIN_SECONDS) >= COMPLAIN_SECONDS:
        _complained_at[sentence] = now
        logger.warning(sentence, settings.LOGIN_HEADER)


@register()
def check_login_header(app_configs: object, **kwargs: object) -> list[CheckMessage]:
    """Also run by every web process before it serves."""
    problem = _problem()
    hint = "Set LOGIN_HEADER=Remote-Email and LOGIN_HEADER_FROM=192.0.2.7 (docs/install.md), or neither."
    return [Error(problem, hint=hint, id="intake.E006")] if problem else []


def _problem() -> str:
    name, texts = settings.LOGIN_HEADER, tuple(settings.LOGIN_HEADER_FROM)
    if not name:
        return "LOGIN_HEADER_FROM has addresses, and LOGIN_HEADER names no header." if texts else ""
    if not NAME.fullmatch(name) or name.lower() in NO_NAMES:
        return f"LOGIN_HEADER is {name!r}, which is no name of a header for log-in."
    if not texts:
        return (
            "LOGIN_HEADER is set, and LOGIN_HEADER_FROM names no address of a proxy: anybody could log in as anybody."
        )
    try:
        everybody = [text for text, network in zip(texts, networks(texts), strict=True) if network.prefixlen == 0]
    except ValueError as error:
        return f"LOGIN_HEADER_FROM has something that is no address and no network: {error}."
    return f"LOGIN_HEADER_FROM has {everybody[0]}, which is everybody." if everybody else ""
