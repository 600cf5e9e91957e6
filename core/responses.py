"""Turns every failure of a DRF view into `application/problem+json` (RFC 9457) with the contract's fields."""

import shutil
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import suppress
from functools import wraps
from http import HTTPStatus
from typing import Annotated, Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.request import split_domain_port
from django.http.response import HttpResponseBase
from django.utils.module_loading import import_string
from django.views.decorators.csrf import csrf_exempt
from psycopg.errors import DiskFull
from pydantic import BaseModel, Field
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import set_rollback

from core.errors import (
    STATUSES,
    AuthenticationRequired,
    InsufficientScope,
    InvalidInput,
    NotFound,
    RateLimited,
    RecollectError,
    TooLarge,
    Unavailable,
)
from core.rate_limits import StreamLease, client_address, counted_refusal
from core.text import gettext_noop as _
from core.text import in_language, page_language

CONTENT_TYPE = "application/problem+json"
# The scheme that every tool for agents understands; `Token` is accepted too.
CHALLENGE = 'Bearer realm="recollect"'
AsyncView = Callable[..., Coroutine[Any, Any, HttpResponseBase]]


def problem(error: RecollectError, *, status: int | None = None, language: str = "en") -> dict[str, Any]:
    """The body: `type, title, status, detail, code, retryable`, and `errors` per field if the input is wrong.

    `language`: that of the page whose script gets it (`core.text.page_language`).
    """
    http_status = HTTPStatus(status or error.status)
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": http_status.phrase,
        "status": http_status.value,
        "detail": in_language(error.detail, language),
        "code": error.code,
        "retryable": error.retryable,
    }
    if error.errors:
        body["errors"] = {
            field: [in_language(sentence, language) for sentence in sentences]
            for field, sentences in error.errors.items()
        }
    return body | error.more


def problem_response(error: RecollectError, request: HttpRequest, *, status: int | None = None) -> HttpResponse:
    """For views that are not DRF's; in the vendors' form where they are asked in it."""
    if request.path_info.startswith("/v1/"):
        found, usual = vendor_problem(error)
        # Both vendors' clients repeat a request whose status is 500 or more, unless they read this.
        headers = _headers(error) | ({} if error.retryable else {"x-should-retry": "false"})
        return JsonResponse(found, status=status or usual, headers=headers)
    body = problem(error, status=status, language=page_language(request.headers))
    return JsonResponse(body, status=body["status"], content_type=CONTENT_TYPE, headers=_headers(error))


def _headers(error: RecollectError) -> dict[str, str]:
    headers = {"WWW-Authenticate": CHALLENGE} if error.code == AuthenticationRequired.code else {}
    return headers | ({"Retry-After": retry_after(error)} if error.retryable else {})


def retry_after(error: RecollectError) -> str:
    """Seconds, for the header of the same name."""
    return str(getattr(error, "retry_after", None) or 5)


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's `EXCEPTION_HANDLER`. It leaves unexpected errors to Django, which answers 500 and logs them."""
    error = as_recollect_error(exc)
    if error is None:
        return None
    set_rollback()
    status = exc.status_code if isinstance(exc, exceptions.APIException) else None
    if isinstance(error, AuthenticationRequired):
        error, status = counted_refusal(error, address=client_address(context["request"])), None
    body = problem(error, status=status, language=page_language(context["request"].headers))
    return Response(body, status=body["status"], content_type=CONTENT_TYPE, headers=_headers(error))


DATABASE_AWAY = _("The database is not available right now. Try again shortly.")
DISK_FULL = _("The disk is full. The administrator of this server has to make room on it.")


# The first match wins. Errors that are not listed are unexpected.
TRANSLATIONS: list[tuple[tuple[type[Exception], ...], Callable[[Any], RecollectError]]] = [
    ((RecollectError,), lambda exc: exc),
    ((Http404,), lambda _: NotFound()),
    ((RequestDataTooBig,), lambda _: TooLarge()),
    ((OperationalError, InterfaceError), lambda exc: database_away(exc)),  # noqa: PLW0108 - it is defined below
    ((exceptions.NotAuthenticated, exceptions.AuthenticationFailed), lambda _: AuthenticationRequired()),
    ((exceptions.PermissionDenied, PermissionDenied), lambda exc: AuthenticationRequired(str(exc) or None)),
    ((exceptions.Throttled,), lambda _: RateLimited()),
    ((exceptions.APIException,), lambda exc: InvalidInput(str(exc.detail))),
]


def database_away(error: Exception | None = None) -> Unavailable:
    """The reason why the database cannot be used: a full disk, where PostgreSQL or this machine says so."""
    return Unavailable(DISK_FULL if is_disk_full(error) else DATABASE_AWAY)


def is_disk_full(error: Exception | None = None) -> bool:
    if isinstance(getattr(error, "__cause__", None), DiskFull):
        return True
    if not settings.DATABASE_FOLDER:
        return False
    with suppress(OSError):
        # PostgreSQL stops if it has no room for one more file of its log, which has 16 MB.
        return shutil.disk_usage(settings.DATABASE_FOLDER).free < 20 * 2**20
    return False


def as_recollect_error(exc: Exception) -> RecollectError | None:
    """Translate failures of Django, DRF and the database into this project's errors; None for unexpected ones."""
    for kinds, translate in TRANSLATIONS:
        if isinstance(exc, kinds):
            return translate(exc)
    return None


# By the status, the type of an error in the protocols of OpenAI and Anthropic.
TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
}
CODES = {"too_large": "request_too_large", "authentication_required": "invalid_api_key"}


def vendor_problem(error: RecollectError) -> tuple[dict[str, Any], HTTPStatus]:
    """An error as clients of either vendor read it, and its status. They shorten the history if a window is full."""
    is_full = error.about in ("message", "window")
    status = HTTPStatus.BAD_REQUEST if is_full else STATUSES.get(error.code, HTTPStatus.NOT_FOUND)
    default = "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "api_error"
    about = {
        "type": TYPES.get(status, default),
        "message": f"prompt is too long: {error.detail}" if is_full else error.detail,
        "param": None,
        "code": "context_length_exceeded" if is_full else CODES.get(error.code, error.code),
    }
    return {"type": "error", "error": about}, status


def site_of(request: HttpRequest) -> str:
    """The scheme and host of this site, for a link that somebody else opens: in an email, an invitation.

    The name in the Host header is one of ALLOWED_HOSTS, but nothing checks its port. So without PUBLIC_URL the link
    has a port only if this server itself listens on it; behind a proxy that is never the port of the site.
    """
    if settings.SITE_ADDRESS:
        return str(settings.SITE_ADDRESS)
    name, port = split_domain_port(request.get_host())
    is_own = settings.TRUSTED_PROXIES == 0 and port and port == str(request.META.get("SERVER_PORT"))
    return f"{request.scheme}://{name}:{port}" if is_own else f"{request.scheme}://{name}"


def streaming(method: str) -> Callable[[AsyncView], AsyncView]:
    """For a view of one method that streams: it runs on the event loop, is no DRF view, and checks its caller itself.

    An expected failure becomes a problem document, as of the other endpoints.
    """
    allowed = [*(["GET", "HEAD"] if method == "GET" else [method]), "OPTIONS"]

    def decorate(view: AsyncView) -> AsyncView:
        @wraps(view)
        async def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if request.method == "OPTIONS":
                return HttpResponse(headers={"Allow": ", ".join(allowed)})
            if request.method not in allowed:
                error = InvalidInput(f'Method "{request.method}" not allowed.')
                response = problem_response(error, request, status=HTTPStatus.METHOD_NOT_ALLOWED)
                response["Allow"] = ", ".join(allowed)
                return response
            try:
                return await view(request, *args, **kwargs)
            except Exception as error:
                return await sync_to_async(refusal)(request, error)

        return csrf_exempt(login_not_required(answer))

    return decorate


def refusal(request: HttpRequest, error: Exception) -> HttpResponse:
    """The problem document of an expected failure; raises any other. Counts refusals without a known caller."""
    known = as_recollect_error(error)
    if known is None:
        raise error
    if isinstance(known, AuthenticationRequired):
        known = counted_refusal(known, address=client_address(request))
    return problem_response(known, request)


def event_stream(events: AsyncIterator[bytes], lease: StreamLease) -> StreamingHttpResponse:
    """The lease is that of `rate_limits.begin_stream`, and ends with the response."""
    response = StreamingHttpResponse(lease.over(events), content_type="text/event-stream")
    response["Cache-Control"] = "no-store"
    # Some proxies buffer a response; this header asks them not to.
    response["X-Accel-Buffering"] = "no"
    return response


def user_by_token(request: HttpRequest, *, scopes: Collection[str], lacking: str) -> tuple[Any, Any]:
    """The user and their token, by the API's own authentication class, the first in the settings. Raises as `admit`."""
    names: Any = settings.REST_FRAMEWORK["DEFAULT_AUTHENTICATION_CLASSES"]
    authenticator: type[BaseAuthentication] = import_string(names[0])
    authenticated = authenticator().authenticate(Request(request))
    if authenticated is None:
        raise AuthenticationRequired
    user, token = authenticated
    if not set(scopes) & set(token.scopes):
        raise InsufficientScope(lacking)
    return user, token


class Problem(BaseModel):
    """A failure (RFC 9457)."""

    type: str
    title: Annotated[str, Field(description="The status in words.")]
    status: int
    detail: Annotated[str, Field(description="A sentence for a person.")]
    code: Annotated[str, Field(description="What went wrong, for a program.", examples=sorted(STATUSES))]
    retryable: Annotated[bool, Field(description="Whether the same request may succeed later.")]
    errors: Annotated[dict[str, list[str]] | None, Field(description="What is wrong with each field.")] = None


def problems(*statuses: int) -> dict[tuple[int, str], Any]:
    """For `extend_schema(responses=…)`. An endpoint with authentication may also answer 403 and 429."""
    known = {403, 429} if HTTPStatus.UNAUTHORIZED in statuses else set()
    return {(status, CONTENT_TYPE): Problem for status in sorted({*statuses, *known})}


# The header that makes a repeated request harmless; each endpoint describes its effect.
KEY_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[\x21-\x7e]+$"}
A_KEY = "Any text of your own, 1 to 255 visible ASCII characters"
