"""`GET /api/v1/intake/events`: which of the caller's chats have changed, by id, while a page is open."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.module_loading import import_string
from django.views import View
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from core import rate_limits
from core.errors import AuthenticationRequired, InsufficientScope
from core.problems import as_recollect_error, problem_response
from intake import sse
from intake.changes import Changes
from intake.identity import caller_of
from intake.standing import StillIn, is_still_good, session_is_good

# Between two signs of life, at each of which it is asked whether the caller may still be here.
KEEP_ALIVE_SECONDS = 15.0


@method_decorator([login_not_required], name="dispatch")
class EventsView(View):
    """For a token, or a session, also a visitor's. Without Redis the stream is open and silent."""

    async def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            reader = await sync_to_async(_admit)(request)
        except Exception as error:
            known = as_recollect_error(error)
            if known is None:
                raise
            return problem_response(known)
        response = StreamingHttpResponse(_events(reader), content_type="text/event-stream")
        response["Cache-Control"] = "no-store"
        response["X-Accel-Buffering"] = "no"
        return response


@dataclass(frozen=True, slots=True)
class ListeningPage:
    """Whose changes are told, and how to find out later whether they may still be."""

    user_id: int
    is_still_in: StillIn | None = None


def _admit(request: HttpRequest) -> ListeningPage:
    """By a token that may search, or by a session."""
    address = rate_limits.client_address(request)
    if request.headers.get("Authorization"):
        names: Any = settings.REST_FRAMEWORK["DEFAULT_AUTHENTICATION_CLASSES"]
        authenticator: type[BaseAuthentication] = import_string(names[0])
        user, token = authenticator().authenticate(Request(request)) or (None, None)
        if user is None or token is None:
            raise AuthenticationRequired
        if "search" not in token.scopes:
            raise InsufficientScope("Changes are told to a token with the scope `search`.")
        rate_limits.take_for("api", user_id=user.pk, address=address)
        return ListeningPage(user.pk, lambda: token.is_still_valid(now=timezone.now()))
    caller = caller_of(request)
    if caller.user_id is None:
        raise AuthenticationRequired
    rate_limits.take_for("api", user_id=caller.user_id if caller.is_registered else None, address=address)
    if caller.is_visitor:
        return ListeningPage(caller.user_id)
    return ListeningPage(caller.user_id, partial(session_is_good, request.session.session_key, user_id=caller.user_id))


async def _events(reader: ListeningPage) -> AsyncIterator[bytes]:
    """`changed` events with `{conversationId}`, the same one at most once in a row."""
    await sync_to_async(connections.close_all)()
    with Changes(reader.user_id) as queue:
        yield sse.encode("open", {})
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    changed = await queue.get()
            except TimeoutError:
                if reader.is_still_in is not None and not await is_still_good(reader.is_still_in):
                    return
                yield sse.KEEP_ALIVE
                continue
            if changed is None:
                return
            yield sse.encode("changed", {"conversationId": changed})
