"""`GET /api/v1/intake/events`: streams the ids of the caller's changed chats while a page is open."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from core import rate_limits
from core.errors import AuthenticationRequired
from core.rate_limits import StreamLease
from intake import sse
from intake.changes import Changes
from intake.revocation import SessionCheck, while_authorized
from intake.views.admission import Admitted, StreamingView, admit, event_stream, refusal

# The interval of keep-alive comments.
KEEP_ALIVE_SECONDS = 15.0
SCOPES, LACKING = {"read", "chat"}, "Changes are told to a token with the scope `read`."


class ChangesView(StreamingView):
    """For a token, or a session, also a visitor's. Without Redis the stream is open and silent."""

    async def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            admitted, user_id, lease = await sync_to_async(_admit)(request)
            # A visitor's session ends too: with the registration, or a log-in to another account.
            is_authorized = admitted.is_still_in or SessionCheck(request.session.session_key, user_id)
        except Exception as error:
            return await sync_to_async(refusal)(request, error)
        return event_stream(while_authorized(_events(user_id), is_authorized), lease)


def _admit(request: HttpRequest) -> tuple[Admitted, int, StreamLease]:
    admitted = admit(request, scopes=SCOPES, lacking=LACKING)
    user_id = admitted.caller.user_id
    if user_id is None:
        raise AuthenticationRequired
    counted = user_id if admitted.caller.is_registered else None
    rate_limits.take_for("api", user_id=counted, address=rate_limits.client_address(request))
    return admitted, user_id, rate_limits.begin_stream(request, user_id=user_id)


async def _events(user_id: int) -> AsyncIterator[bytes]:
    """`changed` events with `{conversationId}`, after an `open` one."""
    with Changes(user_id) as queue:
        yield sse.encode("open", {})
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    changed = await queue.get()
            except TimeoutError:
                yield sse.KEEP_ALIVE
                continue
            if changed is None:
                return
            yield sse.encode("changed", {"conversationId": changed})
