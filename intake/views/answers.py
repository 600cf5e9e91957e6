"""Endpoints of a running answer: `GET …/turns/{id}/events` follows it, `POST …/turns/{id}/stop` ends it.

`GET …/answering` lists the running answers, so that the page can mark their chats.
"""

from http import HTTPStatus

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase

from core import rate_limits
from core.errors import AuthenticationRequired, InvalidInput, NotFound
from core.isolation.acting import acting_as
from core.validation import LONGEST_REFERENCE
from intake.models import Turn
from intake.reading import get_turn_by_id, open_answers
from intake.views.admission import Admitted, StreamingView, admit, event_stream, refusal

# RFC 7240: the answer also as HTML, block by block.
PREFER_BLOCKS = "blocks"
LIMIT = "api"


class EventsView(StreamingView):
    async def get(self, request: HttpRequest, turn_id: str) -> HttpResponseBase:
        try:
            after = _last_event_id(request)
            turn, admitted = await sync_to_async(_find)(request, turn_id, scope="read")
            lease = await sync_to_async(rate_limits.begin_stream)(request, user_id=admitted.caller.user_id)
        except Exception as error:
            return await sync_to_async(refusal)(request, error)
        # Imported here because it imports the agent loop, which no other page should wait for at start-up.
        from intake.answers.log import EventId
        from intake.chat import follow_answer

        events = follow_answer(
            turn=turn,
            caller=admitted.caller,
            after=EventId.parse(after),
            is_still_in=admitted.is_still_in,
            with_blocks=prefers_blocks(request),
        )
        return event_stream(events, lease)


class StopView(StreamingView):
    async def post(self, request: HttpRequest, turn_id: str) -> HttpResponseBase:
        try:
            turn, admitted = await sync_to_async(_find)(request, turn_id, scope="write")
            from intake.chat import stop_answer

            stopped = await stop_answer(turn=turn, caller=admitted.caller)
            if stopped is None:
                raise NotFound
        except Exception as error:
            return await sync_to_async(refusal)(request, error)
        return _private({"turnId": stopped.pk, "status": stopped.status})


class AnsweringView(StreamingView):
    async def get(self, request: HttpRequest) -> HttpResponseBase:
        try:
            answers = await sync_to_async(_answering)(request)
        except Exception as error:
            return await sync_to_async(refusal)(request, error)
        return _private({"answers": answers})


def prefers_blocks(request: HttpRequest) -> bool:
    """The chat's own page gets HTML while the answer is written; other clients render `delta` themselves."""
    return request.headers.get("Prefer") == PREFER_BLOCKS


def _last_event_id(request: HttpRequest) -> str:
    """The id that the reader sent; an unknown one means from the start."""
    sent: str = request.headers.get("Last-Event-ID", "")
    if len(sent) > LONGEST_REFERENCE:
        raise InvalidInput(f"The Last-Event-ID has at most {LONGEST_REFERENCE} characters.")
    return sent


def _find(request: HttpRequest, turn_id: str, *, scope: str) -> tuple[Turn, Admitted]:
    """Raises the same `NotFound` for a malformed id, an unknown one and another user's."""
    admitted = _admit(request, scope)
    with acting_as(admitted.caller):
        return get_turn_by_id(caller=admitted.caller, turn_id=turn_id), admitted


def _answering(request: HttpRequest) -> list[dict[str, object]]:
    caller = _admit(request, "read").caller
    with acting_as(caller):
        found = open_answers(caller=caller)
    return [{"turnId": turn_id, "conversationId": str(conversation_id)} for turn_id, conversation_id in found]


def _admit(request: HttpRequest, scope: str) -> Admitted:
    admitted = admit(request, scopes={scope, "chat"}, lacking=f"This token lacks the scope `{scope}`.")
    caller = admitted.caller
    if caller.user_id is None:
        raise AuthenticationRequired
    counted = caller.user_id if caller.is_registered else None
    rate_limits.take_for(LIMIT, user_id=counted, address=rate_limits.client_address(request))
    return admitted


def _private(data: dict[str, object]) -> HttpResponse:
    return JsonResponse(data, status=HTTPStatus.OK, headers={"Cache-Control": "private, no-store"})
