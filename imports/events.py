"""`GET /api/v1/imports/{id}/events/`: streams the import as server-sent events while it changes."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from core import rate_limits
from core.errors import AuthenticationRequired, NotFound, RecollectError
from core.event_streams import KEEP_ALIVE
from core.isolation.acting import acting_as
from core.responses import as_recollect_error, event_stream, streaming, user_by_token
from imports import services
from imports.rest import IMPORT_SCOPE, data_of, refuse_others
from intake.accounts.identity import is_registered
from intake.models import User
from intake.revocation import IsAuthorized, SessionCheck, TokenCheck, while_authorized

# The row is read twice a second, in a thread that returns its connection at once: a stream lasts longer than a pool can
# wait.

LOOK_SECONDS, KEEP_ALIVE_SECONDS = 0.5, 15


@streaming("GET")
async def import_events(request: HttpRequest, import_id: str) -> HttpResponseBase:
    """For a token with the scope `import`, or a session."""
    user, is_authorized = await sync_to_async(_admit)(request, import_id)
    lease = await sync_to_async(rate_limits.begin_stream)(request, user_id=user.pk)
    first = await sync_to_async(_look, thread_sensitive=False)(user, import_id)
    events = while_authorized(
        _events(user, import_id, first), is_authorized, keep_alive=(KEEP_ALIVE_SECONDS, KEEP_ALIVE)
    )
    return event_stream(events, lease)


def _admit(request: HttpRequest, import_id: str) -> tuple[User, IsAuthorized]:
    if request.headers.get("Authorization"):
        lacking = f"This token lacks the scope `{IMPORT_SCOPE}`."
        user, token = user_by_token(request, scopes={IMPORT_SCOPE}, lacking=lacking)
        refuse_others(user, token, import_id)
        is_authorized: IsAuthorized = TokenCheck(token)
    elif is_registered(request) and isinstance(request.user, User):
        user = request.user
        is_authorized = SessionCheck(request.session.session_key, user.pk)
    else:
        raise AuthenticationRequired
    rate_limits.take_for("api", user_id=user.pk, address=rate_limits.client_address(request))
    return user, is_authorized


async def _events(user: User, import_id: str, first: dict[str, Any]) -> AsyncIterator[bytes]:
    number, looks, shown = 1, 0, first
    yield _encode(number, first)
    while not shown["is_at_rest"]:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            looks += 1
            # The number of reads between two counts of the waiting vectors, which may be a hundred thousand rows.
            before = None if looks % 20 == 0 else shown["import"]
            now = await sync_to_async(_look, thread_sensitive=False)(user, import_id, before)
        except NotFound:
            return
        except Exception as error:
            if not isinstance(as_recollect_error(error), RecollectError):
                raise
            # The database is unavailable for the moment.
            continue
        if now != shown:
            shown, number = now, number + 1
            yield _encode(number, shown)


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
