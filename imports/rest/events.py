"""`GET /api/v1/imports/{id}/events/`: streams the import as server-sent events while it changes.

The row is read twice a second, in a thread that returns its connection at once: a stream lasts longer than a pool can
wait.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import method_decorator
from django.utils.module_loading import import_string
from django.views import View
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from core import rate_limits
from core.errors import AuthenticationRequired, InsufficientScope, InvalidInput, NotFound, RecollectError
from core.isolation.acting import acting_as
from core.problems import as_recollect_error, problem_response
from imports import services
from imports.rest.views import IMPORT_SCOPE, data_of
from intake.identity import is_registered
from intake.models import User
from intake.revocation import IsAuthorized, SessionCheck, TokenCheck, while_authorized
from intake.sse import KEEP_ALIVE
from intake.views.admission import event_stream, refusal

LOOK_SECONDS = 0.5
# The number of reads between two counts of the waiting vectors, which may be a hundred thousand rows.
LOOKS_PER_COUNT = 20
KEEP_ALIVE_SECONDS = 15


@method_decorator(login_not_required, name="dispatch")
class ImportEventsView(View):
    """Checks the caller itself: a token with the scope `import`, or a session."""

    # The type stubs know only synchronous views.
    async def http_method_not_allowed(  # type: ignore[override]
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """The same response as of the other endpoints."""
        error = InvalidInput(f'Method "{request.method}" not allowed.')
        response = problem_response(error, status=HTTPStatus.METHOD_NOT_ALLOWED)
        response["Allow"] = "GET, HEAD, OPTIONS"
        return response

    async def get(self, request: HttpRequest, import_id: str) -> HttpResponseBase:
        try:
            user, is_authorized = await sync_to_async(_admit)(request)
            lease = await sync_to_async(rate_limits.begin_stream)(request, user_id=user.pk)
            first = await sync_to_async(_look, thread_sensitive=False)(user, import_id)
        except Exception as error:
            return await sync_to_async(refusal)(request, error)
        return event_stream(while_authorized(_events(user, import_id, first), is_authorized), lease)


def _admit(request: HttpRequest) -> tuple[User, IsAuthorized]:
    if request.headers.get("Authorization"):
        names: Any = settings.REST_FRAMEWORK["DEFAULT_AUTHENTICATION_CLASSES"]
        authenticator: type[BaseAuthentication] = import_string(names[0])
        authenticated = authenticator().authenticate(Request(request))
        if authenticated is None:
            raise AuthenticationRequired
        user, token = authenticated
        if IMPORT_SCOPE not in token.scopes:
            raise InsufficientScope(f"This token lacks the scope `{IMPORT_SCOPE}`.")
        is_authorized: IsAuthorized = TokenCheck(token)
    elif is_registered(request) and isinstance(request.user, User):
        user = request.user
        is_authorized = SessionCheck(request.session.session_key, user.pk)
    else:
        raise AuthenticationRequired
    rate_limits.take_for("api", user_id=user.pk, address=rate_limits.client_address(request))
    return user, is_authorized


async def _events(user: User, import_id: str, first: dict[str, Any]) -> AsyncIterator[bytes]:
    number, silent, looks, shown = 1, 0.0, 0, first
    yield _encode(number, first)
    while not shown["is_at_rest"]:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            looks += 1
            before = None if looks % LOOKS_PER_COUNT == 0 else shown["import"]
            now = await sync_to_async(_look, thread_sensitive=False)(user, import_id, before)
        except NotFound:
            return
        except Exception as error:
            if not isinstance(as_recollect_error(error), RecollectError):
                raise
            # The database is unavailable for the moment.
            continue
        if now != shown:
            shown, silent, number = now, 0.0, number + 1
            yield _encode(number, shown)
        elif (silent := silent + LOOK_SECONDS) >= KEEP_ALIVE_SECONDS:
            silent = 0.0
            yield KEEP_ALIVE


def _look(user: User, import_id: str, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """The import as it is now; its waiting vectors are those of `before`, if it is not at rest."""
    try:
        with acting_as(user):
            batch = services.get(user=user, import_id=import_id)
            data = data_of(batch, counts_vectors=before is None or batch.is_at_rest)
            if before is not None and not batch.is_at_rest:
                data["vectors"] = before["vectors"]
            return {"import": data, "is_at_rest": batch.is_at_rest}
    finally:
        connections.close_all()


def _encode(number: int, shown: dict[str, Any]) -> bytes:
    body = json.dumps(shown["import"], ensure_ascii=False, separators=(",", ":"))
    return f"id: {number}\nevent: import\ndata: {body}\n\n".encode(errors="replace")
