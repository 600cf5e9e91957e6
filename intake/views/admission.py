"""Authenticates callers of streaming views: a token with its scopes, or a session (also a visitor's) with CSRF.

Streaming views run on the event loop and are not DRF views. They refuse with the same responses.
"""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils.decorators import method_decorator
from django.utils.module_loading import import_string
from django.views import View
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from core import rate_limits
from core.errors import AuthenticationRequired, InsufficientScope, InvalidInput
from core.isolation.caller import Caller
from core.problems import as_recollect_error, problem_response
from core.rate_limits import CountedStream, StreamLease
from intake.identity import caller_of
from intake.revocation import IsAuthorized, SessionCheck, TokenCheck


@dataclass(frozen=True, slots=True)
class Admitted:
    """The admitted caller, with a check for later whether the access still holds; a visitor's cannot be revoked."""

    caller: Caller
    is_still_in: IsAuthorized | None = None


@method_decorator([csrf_exempt, login_not_required], name="dispatch")
class StreamingView(View):
    """The base of asynchronous views, which check their callers themselves with `admit`."""

    # The type stubs know only synchronous views.
    async def http_method_not_allowed(  # type: ignore[override]
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """The same response as of the other endpoints."""
        error = InvalidInput(f'Method "{request.method}" not allowed.')
        response = problem_response(error, status=HTTPStatus.METHOD_NOT_ALLOWED)
        allowed = [name.upper() for name in self.http_method_names if name != "head" and hasattr(self, name)]
        response["Allow"] = ", ".join(allowed)
        return response


def admit(request: HttpRequest, *, scopes: Collection[str], lacking: str) -> Admitted:
    """A token needs one of the scopes. Raises `AuthenticationRequired`, or `InsufficientScope` with `lacking`."""
    if request.headers.get("Authorization"):
        return _admit_by_token(Request(request), scopes, lacking)
    if _protected(request).status_code != HTTPStatus.OK:
        raise AuthenticationRequired("The page is out of date. Reload it and try again.")
    caller = caller_of(request)
    if caller.user_id is None or caller.is_visitor:
        if not settings.VISITORS:
            raise AuthenticationRequired("Log in to chat here.")
        return Admitted(caller)
    return Admitted(caller, SessionCheck(request.session.session_key, caller.user_id))


def event_stream(events: AsyncIterator[bytes], lease: StreamLease) -> StreamingHttpResponse:
    """The lease is that of `rate_limits.begin_stream`, and ends with the response."""
    response = StreamingHttpResponse(CountedStream(events, lease), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    # Some proxies buffer a response; this header asks them not to.
    response["X-Accel-Buffering"] = "no"
    return response


def refusal(request: HttpRequest, error: Exception) -> HttpResponse:
    """The problem document of an expected failure; raises any other. Counts refusals without a known caller."""
    known = as_recollect_error(error)
    if known is None:
        raise error
    if isinstance(known, AuthenticationRequired):
        known = rate_limits.counted_refusal(known, address=rate_limits.client_address(request))
    return problem_response(known)


def _admit_by_token(request: Request, scopes: Collection[str], lacking: str) -> Admitted:
    """By the API's own authentication class, the first in the settings."""
    names: Any = settings.REST_FRAMEWORK["DEFAULT_AUTHENTICATION_CLASSES"]
    authenticator: type[BaseAuthentication] = import_string(names[0])
    authenticated = authenticator().authenticate(request)
    if authenticated is None:
        raise AuthenticationRequired
    user, token = authenticated
    if not set(scopes) & set(token.scopes):
        raise InsufficientScope(lacking)
    return Admitted(Caller(user_id=user.pk), TokenCheck(token))


@csrf_protect
def _protected(request: HttpRequest) -> HttpResponse:
    """Answers 200 where Django's check of the CSRF token lets the request pass."""
    return HttpResponse()
