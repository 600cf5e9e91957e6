"""`POST /api/v1/intake/chat`: a message comes in, the answer leaves as a stream of events."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.module_loading import import_string
from django.views import View
from django.views.decorators.csrf import csrf_exempt, csrf_protect
from pydantic import Field
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from core import rate_limits
from core.errors import AuthenticationRequired, InsufficientScope, InvalidInput
from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from core.problems import as_recollect_error, problem_response
from core.validation import Input, parse_json, validate
from intake import changes, idempotency
from intake.identity import caller_of
from intake.models import User
from intake.reading import as_conversation_id
from intake.repeating import Begun, begin_turn_once
from intake.standing import StillIn, session_is_good

# RFC 7240: the answer also as HTML, block by block.
PREFER_BLOCKS = "blocks"


class ChatMessage(Input):
    """The request's body."""

    message: Annotated[str, Field(description="What the person says: 1 to 32,000 characters.")]
    conversation_id: Annotated[str | None, Field(description="The conversation to go on with, if any.")] = None


@method_decorator([csrf_exempt, login_not_required], name="dispatch")
class ChatView(View):
    """Checks the caller itself: a token, or a session (also a visitor's) with CSRF."""

    # The stubs know of synchronous views only.
    async def http_method_not_allowed(  # type: ignore[override]
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """In the words of the other endpoints."""
        error = InvalidInput(f'Method "{request.method}" not allowed.')
        response = problem_response(error, status=HTTPStatus.METHOD_NOT_ALLOWED)
        response["Allow"] = "POST, OPTIONS"
        return response

    async def post(self, request: HttpRequest) -> HttpResponseBase:
        try:
            begun, admitted = await sync_to_async(_begin)(request)
        except Exception as error:
            return _refusal(error)
        # Imported here because it brings the agent loop along, which no other page should wait for at start-up.
        from intake.chat import replay, stream_answer

        # The chat's own page draws the answer as HTML while it is written; other clients render `delta` themselves.
        with_blocks = request.headers.get("Prefer") == PREFER_BLOCKS
        events = (
            replay(turn=begun.turn, with_blocks=with_blocks)
            if begun.is_replay
            else stream_answer(
                turn=begun.turn,
                caller=admitted.caller,
                is_still_in=admitted.is_still_in,
                with_blocks=with_blocks,
            )
        )
        response = StreamingHttpResponse(events, content_type="text/event-stream")
        if begun.is_replay:
            response[idempotency.REPLAYED] = "true"
        response["Cache-Control"] = "no-store"
        # Some proxies gather a response before they pass it on; this one is asked not to.
        response["X-Accel-Buffering"] = "no"
        return response


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who is let in, and how to find out later whether they still are; from a visitor nothing can be taken away."""

    caller: Caller
    is_still_in: StillIn | None = None


def _begin(request: HttpRequest) -> tuple[Begun, Admitted]:
    """Everything that may be refused, in one go: who, what, where; then the message is saved."""
    admitted = _authenticate(request)
    # Visitors are counted by their address: one who forgets the cookies is somebody new.
    counted = admitted.caller.user_id if admitted.caller.is_registered else None
    rate_limits.take_for("chat", user_id=counted, address=rate_limits.client_address(request))
    wanted = validate(ChatMessage, parse_json(request.body))
    given, key = wanted.conversation_id, request.headers.get(idempotency.HEADER)
    begin = partial(
        begin_turn_once,
        key=None if key is None else idempotency.clean_key(key),
        message=wanted.message,
        conversation_id=None if given is None else as_conversation_id(given),
        now=timezone.now(),
    )
    if admitted.caller.user_id is None:
        admitted, begun = _begin_as_visitor(request, begin)
    else:
        with acting_as(admitted.caller):
            begun = begin(caller=admitted.caller)
    changes.tell(admitted.caller, begun.turn.conversation_id)
    if admitted.caller.is_visitor:
        # As long as what they said is kept.
        request.session.set_expiry(timedelta(days=settings.VISITOR_DAYS))
    return begun, admitted


def _begin_as_visitor(request: HttpRequest, begin: Callable[..., Begun]) -> tuple[Admitted, Begun]:
    """A first message makes its visitor and logs them in; one that is refused makes nobody."""
    with transaction.atomic():
        visitor = User.objects.create_visitor()
        caller = Caller(user_id=visitor.pk, is_visitor=True)
        with acting_as(caller):
            begun = begin(caller=caller)
        login(request, visitor)
    return Admitted(caller), begun


def _authenticate(request: HttpRequest) -> Admitted:
    if request.headers.get("Authorization"):
        return _admitted_by_token(Request(request))
    if _protected(request).status_code != HTTPStatus.OK:
        raise AuthenticationRequired("The page is out of date. Reload it and try again.")
    caller = caller_of(request)
    if caller.user_id is None or caller.is_visitor:
        return Admitted(caller)
    return Admitted(caller, partial(session_is_good, request.session.session_key, user_id=caller.user_id))


def _admitted_by_token(request: Request) -> Admitted:
    """By the API's own authentication class, the first in the settings; the token must be good for all a chat does."""
    names: Any = settings.REST_FRAMEWORK["DEFAULT_AUTHENTICATION_CLASSES"]
    authenticator: type[BaseAuthentication] = import_string(names[0])
    authenticated = authenticator().authenticate(request)
    if authenticated is None:
        raise AuthenticationRequired
    user, token = authenticated
    if not {"search", "write"} <= set(token.scopes):
        raise InsufficientScope("A chat recalls and records: its token needs the scopes `search` and `write`.")
    return Admitted(Caller(user_id=user.pk), lambda: token.is_still_valid(now=timezone.now()))


@csrf_protect
def _protected(request: HttpRequest) -> HttpResponse:
    """Answers 200 where Django's check of the CSRF token lets the request pass."""
    return HttpResponse()


def _refusal(error: Exception) -> HttpResponse:
    known = as_recollect_error(error)
    if known is None:
        raise error
    return problem_response(known)
