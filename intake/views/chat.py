"""`POST /api/v1/intake/chat`: a message comes in, the answer leaves as a stream of events."""

from typing import Annotated, Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.middleware.csrf import CsrfViewMiddleware
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.module_loading import import_string
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from pydantic import Field
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from intake import limits, services
from intake.acting import acting_as
from intake.errors import AuthenticationRequired, InsufficientScope
from intake.identity import caller_of, visitor_key_of
from intake.models import Turn
from intake.models.conversations import Caller
from intake.parsers import parse_json
from intake.problems import as_recollect_error, problem_response
from intake.reading import as_conversation_id
from intake.validation import Input, validate


class ChatMessage(Input):
    """The request's body."""

    message: Annotated[str, Field(description="What the person says: 1 to 32,000 characters.")]
    conversation_id: Annotated[str | None, Field(description="The conversation to go on with, if any.")] = None


@method_decorator(csrf_exempt, name="dispatch")
class ChatView(View):
    """Checks the caller itself: a token, or a session (also a visitor's) with CSRF."""

    async def post(self, request: HttpRequest) -> HttpResponseBase:
        try:
            turn, caller = await sync_to_async(_begin)(request)
        except Exception as error:
            return _refusal(error)
        # Imported here because it brings the agent loop along, which no other page should wait for at start-up.
        from intake.chat import stream_answer

        response = StreamingHttpResponse(stream_answer(turn=turn, caller=caller), content_type="text/event-stream")
        response["Cache-Control"] = "no-store"
        # Some proxies gather a response before they pass it on; this one is asked not to.
        response["X-Accel-Buffering"] = "no"
        return response


def _begin(request: HttpRequest) -> tuple[Turn, Caller]:
    """Everything that may be refused, in one go: who, what, where; then the message is saved."""
    caller = _authenticate(request)
    limits.take_for("chat", user_id=caller.user_id, address=limits.client_address(request))
    wanted = validate(ChatMessage, parse_json(request.body))
    given = wanted.conversation_id
    with acting_as(caller):
        turn = services.begin_turn(
            caller=caller,
            message=wanted.message,
            conversation_id=None if given is None else as_conversation_id(given),
            now=timezone.now(),
        )
    return turn, caller


def _authenticate(request: HttpRequest) -> Caller:
    if request.headers.get("Authorization"):
        return _caller_of_token(Request(request))
    refused = _CsrfCheck(_any_view).process_view(request, _any_view, (), {})
    if refused is not None:
        raise AuthenticationRequired("The page is out of date. Reload it and try again.")
    if not request.user.is_authenticated:
        visitor_key_of(request, create=True)
    return caller_of(request)


def _caller_of_token(request: Request) -> Caller:
    """By the API's own authentication class, the first in the settings; the token must be good for all a chat does."""
    names: Any = settings.REST_FRAMEWORK["DEFAULT_AUTHENTICATION_CLASSES"]
    authenticator: type[BaseAuthentication] = import_string(names[0])
    authenticated = authenticator().authenticate(request)
    if authenticated is None:
        raise AuthenticationRequired
    user, token = authenticated
    if not {"search", "write"} <= set(token.scopes):
        raise InsufficientScope("A chat recalls and records: its token needs the scopes `search` and `write`.")
    return Caller(user_id=user.pk)


def _any_view(request: HttpRequest) -> HttpResponse:
    """What the check is asked about: a view that is not exempt."""
    return HttpResponse()


class _CsrfCheck(CsrfViewMiddleware):
    def _reject(self, request: HttpRequest, reason: str) -> HttpResponse:
        return HttpResponse(reason, status=403)


def _refusal(error: Exception) -> HttpResponse:
    known = as_recollect_error(error)
    if known is None:
        raise error
    return problem_response(known)
