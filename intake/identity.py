"""Who is asking: what a request's session or token says, never what its arguments say."""

import secrets
from typing import TYPE_CHECKING, Literal, overload

from django.http import HttpRequest

from core.isolation.caller import Caller
from intake.models import User

if TYPE_CHECKING:
    from rest_framework.request import Request

    AnyRequest = HttpRequest | Request

VISITOR_KEY = "visitor_key"


def caller_of(request: "AnyRequest") -> Caller:
    """The person who is logged in, or the visitor this session knows; reads the session, and so the database."""
    if request.user.is_authenticated:
        return Caller(user_id=request.user.pk)
    return Caller(user_id=None, visitor_key=visitor_key_of(request, create=False))


def person_of(request: "AnyRequest") -> User:
    """Where visitors are not let in: the view's permission classes, or what it is wrapped in, have seen to that."""
    user = request.user
    assert isinstance(user, User), "visitors are not let in"  # noqa: S101
    return user


@overload
def visitor_key_of(request: "AnyRequest", *, create: Literal[True] = True) -> str: ...
@overload
def visitor_key_of(request: "AnyRequest", *, create: bool) -> str | None: ...
def visitor_key_of(request: "AnyRequest", *, create: bool = True) -> str | None:
    """The secret that stands for a visitor, made on their first message.

    It is not the session's own key, which changes at log-in and would open the session to whoever reads a row.
    """
    key: str | None = request.session.get(VISITOR_KEY)
    if key is None and create:
        key = request.session[VISITOR_KEY] = secrets.token_urlsafe(32)
    return key


def forget_visitor(request: "AnyRequest") -> str | None:
    """Take the visitor's key out of the session, because a person has taken their place."""
    key: str | None = request.session.pop(VISITOR_KEY, None)
    return key
