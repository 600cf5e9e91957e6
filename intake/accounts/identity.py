"""Identifies the caller of a request by its session or token, never by its arguments.

Every page and endpoint requires a registered user, unless its view is marked `login_not_required` (or, in DRF, has its
own permission classes). `SessionStore` makes this module the session engine (`SESSION_ENGINE`): Django's database
sessions, each stored with its user and with a digest of its key.
"""

import re
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.translation import ngettext
from rest_framework.exceptions import NotAuthenticated
from rest_framework.permissions import BasePermission

from core.isolation.acting import Caller
from intake.models import Session, User
from intake.models.sessions import SessionDigest

if TYPE_CHECKING:
    from collections.abc import Collection

    from rest_framework.request import Request
    from rest_framework.views import APIView

    AnyRequest = HttpRequest | Request

# The key of `request.META` that keeps the former visitor during a log-in.
VISITOR = "recollect.visitor"
# The header and the form field in which a page says for whom it was made.
PAGE_PERSON_HEADER, PAGE_PERSON_FIELD = "X-Recollect-For", "page_for"
SESSION_KEYS = re.compile(r"[a-z0-9]{8,40}", re.ASCII)


def page_person_of(request: "AnyRequest") -> str:
    """For whom a page is made: equal for all pages of one person, visitor or nobody; neither a secret nor an id."""
    user = request.user
    if not isinstance(user, User):
        return _page_person("n", 0)
    return _page_person("v" if user.is_visitor else "p", user.pk)


def is_made_for_caller(request: HttpRequest, made_for: str) -> bool:
    """Whether a page that was made for this person may write in this session.

    The first message of nobody creates a visitor, so other pages of nobody may write as the visitor in this browser.
    """
    known = [page_person_of(request), *([_page_person("n", 0)] if visitor_of(request) is not None else [])]
    return any(constant_time_compare(made_for, each) for each in known)


def _page_person(kind: str, user_id: int) -> str:
    """The kind is for scripts: what a visitor has not sent is kept over a log-in."""
    return kind + salted_hmac("recollect.page_person", f"{kind}{user_id}", algorithm="sha256").hexdigest()[:32]


def caller_of(request: "AnyRequest") -> Caller:
    """The user of the session or token; reads the session, and so the database."""
    user = request.user
    if not isinstance(user, User):
        return Caller(user_id=None)
    return Caller(user_id=user.pk, is_visitor=user.is_visitor, bound_to=user.bound_to)


def is_registered(request: "AnyRequest") -> bool:
    return isinstance(request.user, User) and not request.user.is_visitor


def visitor_of(request: "AnyRequest") -> User | None:
    """The visitor of this session."""
    return request.user if isinstance(request.user, User) and request.user.is_visitor else None


def person_of(request: "AnyRequest") -> User:
    """The registered user, in a view that requires one."""
    user = request.user
    assert isinstance(user, User) and not user.is_visitor, "only registered users are let in"  # noqa: S101 - tells the types what the code around has seen to
    return user


def owner_of(request: "AnyRequest") -> User:
    """The registered user or the visitor, in a view that requires one of both."""
    user = request.user
    assert isinstance(user, User), "nobody is not let in"  # noqa: S101 - tells the types what the view asks for
    return user


def may_read(request: "Request") -> bool:
    """Whether a response may contain stored data: false only for a token that may write and not read."""
    scopes = getattr(request.auth, "scopes", None)
    return scopes is None or "read" in scopes


def tell_what_came_along(request: HttpRequest, turns: int) -> None:
    """Shown on the next page of a visitor who has become a registered user."""
    if turns:
        sentence = ngettext(
            "The message you wrote in this browser is yours now.",
            "The %(count)d messages you wrote in this browser are yours now.",
            turns,
        )
        messages.success(request, sentence % {"count": turns}, fail_silently=True)


class RegisteredMiddleware(LoginRequiredMiddleware):
    """Redirects all others to the login page, unless the view is marked `login_not_required`."""

    def process_view(
        self, request: HttpRequest, view_func: Any, view_args: tuple[Any, ...], view_kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        if not getattr(view_func, "login_required", True):
            return None
        if is_registered(request):
            _note_use(request)
            return None
        if request.resolver_match is not None and "admin" in request.resolver_match.namespaces:
            return redirect_to_login(request.get_full_path(), reverse("admin:login"))
        return self.handle_no_permission(request, view_func)


def _note_use(request: HttpRequest) -> None:
    session = getattr(request, "session", None)
    if session is not None and session.session_key is not None:
        Session.objects.note_use(session.session_key, now=timezone.now())


class IsRegistered(BasePermission):
    """DRF's default: a visitor gets the same response as a caller without credentials."""

    def has_permission(self, request: "Request", view: "APIView") -> bool:
        if not is_registered(request):
            raise NotAuthenticated
        return True


class SessionStore(DatabaseStore):
    def __init__(self, session_key: str | None = None) -> None:
        """A cookie may contain any key; an invalid one counts as none."""
        super().__init__(session_key if session_key and SESSION_KEYS.fullmatch(session_key) else None)

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        return _bounded(_with_user(super().create_model_instance(data), data))

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        return _bounded(_with_user(await super().acreate_model_instance(data), data))


def _bounded(session: Session) -> Session:
    """A stranger's session holds steps of a log-in, none of which is long; nothing of a stranger's length is stored."""
    # Encoded characters. Several log-ins that are under way through other services fit.
    if session.user_id is None and len(session.session_data) > 8_192:
        raise SuspiciousOperation("A session without a user would have more than a log-in needs.")
    return session


def good_sessions(asked: "Collection[tuple[str | None, int]]") -> set[tuple[str | None, int]]:
    """Those of the sessions (key and user) with which a request would still be the user's: in one query.

    The rules are Django's for every request (`django.contrib.auth.get_user`): the session has not expired, its backend
    is configured, and its hash belongs to the present password of an active user.
    """
    by_digest = {SessionDigest.of(key): (key, user_id) for key, user_id in asked if key and SESSION_KEYS.fullmatch(key)}
    found = Session.objects.filter(session_key__in=by_digest, expire_date__gt=timezone.now()).select_related("user")
    return {by_digest[row.session_key] for row in found if _is_good(row, by_digest[row.session_key][1])}


def _is_good(row: Session, user_id: int) -> bool:
    data = SessionStore().decode(row.session_data)
    user = row.user
    if user is None or not user.is_active or str(user.pk) != data.get(SESSION_KEY) or user.pk != user_id:
        return False
    if data.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return False
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return any(constant_time_compare(data.get(HASH_SESSION_KEY, ""), each) for each in hashes)


def _with_user(session: Any, data: dict[str, Any]) -> Session:
    user_id = data.get(SESSION_KEY)
    session.user_id = int(user_id) if user_id is not None else None
    stored: Session = session
    return stored
