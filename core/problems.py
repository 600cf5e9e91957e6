"""Turns every failure of a DRF view into `application/problem+json` (RFC 9457) with the contract's fields."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpResponse, JsonResponse
from psycopg.errors import DiskFull
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from core.errors import (
    AuthenticationRequired,
    InvalidInput,
    NotFound,
    RateLimited,
    RecollectError,
    TooLarge,
    Unavailable,
)
from core.rate_limits import client_address, counted_refusal

CONTENT_TYPE = "application/problem+json"
# The scheme that every tool for agents understands; `Token` is accepted too.
CHALLENGE = 'Bearer realm="recollect"'
RETRY_AFTER_SECONDS = 5


def problem(error: RecollectError, *, status: int | None = None) -> dict[str, Any]:
    """The body: `type, title, status, detail, code, retryable`, and `errors` per field if the input is wrong."""
    http_status = HTTPStatus(status or error.status)
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": http_status.phrase,
        "status": http_status.value,
        "detail": error.detail,
        "code": error.code,
        "retryable": error.retryable,
    }
    if error.errors:
        body["errors"] = error.errors
    return body | error.more


def problem_response(error: RecollectError, *, status: int | None = None) -> HttpResponse:
    """For views that are not DRF's."""
    body = problem(error, status=status)
    return JsonResponse(body, status=body["status"], content_type=CONTENT_TYPE, headers=_headers(error))


def _headers(error: RecollectError) -> dict[str, str]:
    headers = {"WWW-Authenticate": CHALLENGE} if error.code == AuthenticationRequired.code else {}
    return headers | ({"Retry-After": retry_after(error)} if error.retryable else {})


def retry_after(error: RecollectError) -> str:
    """Seconds, for the header of the same name."""
    return str(getattr(error, "retry_after", None) or RETRY_AFTER_SECONDS)


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's `EXCEPTION_HANDLER`. It leaves unexpected errors to Django, which answers 500 and logs them."""
    error = as_recollect_error(exc)
    if error is None:
        return None
    set_rollback()
    status = exc.status_code if isinstance(exc, exceptions.APIException) else None
    if isinstance(error, AuthenticationRequired):
        error, status = counted_refusal(error, address=client_address(context["request"])), None
    body = problem(error, status=status)
    return Response(body, status=body["status"], content_type=CONTENT_TYPE, headers=_headers(error))


DATABASE_AWAY = "The database is away for the moment. Try again shortly."
DISK_FULL = "The disk is full. The administrator of this server has to make room on it."
# PostgreSQL stops if it has no room for one more file of its log, which has 16 MB.
LEAST_FREE_BYTES = 20 * 2**20


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
        return shutil.disk_usage(settings.DATABASE_FOLDER).free < LEAST_FREE_BYTES
    return False


def as_recollect_error(exc: Exception) -> RecollectError | None:
    """Translate failures of Django, DRF and the database into this project's errors; None for unexpected ones."""
    for kinds, translate in TRANSLATIONS:
        if isinstance(exc, kinds):
            return translate(exc)
    return None
