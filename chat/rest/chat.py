"""The streaming endpoints, and who is admitted to them: a token with its scopes, or a session, also a visitor's.

`POST /api/v1/intake/chat` accepts a message and streams the answer as events; `GET …/turns/{id}/events` follows it and
`POST …/turns/{id}/stop` ends it; `POST …/turns/{id}/approvals/{call}` answers a call that waits;
`GET …/answering` lists the running answers, so that pages can mark their chats;
`GET …/events` streams the ids of the caller's changed chats while a page is open.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import login
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.csrf import csrf_protect

from core import event_streams, rate_limits
from core.errors import AuthenticationRequired, InsufficientScope, InvalidInput, NotFound
from core.isolation.acting import BOUND_ELSEWHERE, Caller, acting_as
from core.rate_limits import StreamLease
from core.responses import event_stream, streaming, user_by_token
from core.text import gettext_noop as _
from core.text import page_language
from core.validation import LONGEST_REFERENCE, body_of, parse_json, validate
from intake.accounts.identity import PAGE_PERSON_HEADER, caller_of, page_person_of
from intake.chats import changes, idempotency
from intake.chats.changes import changes_of
from intake.chats.consent import Decided, Decision, decide
from intake.chats.reading import get_turn_by_id, open_answers
from intake.chats.running import refuse_one_too_many
from intake.chats.services import TurnRequest, create_turn
from intake.llm.language_models import is_recall_mode
from intake.models import Turn, User
from intake.models.installation import may_visitors_chat
from intake.revocation import IsAuthorized, SessionCheck, TokenCheck, while_authorized


@dataclass(frozen=True, slots=True)
class Admitted:
    """The admitted caller, with a check for later whether the access still holds; a visitor's cannot be revoked."""

    caller: Caller
    is_authorized: IsAuthorized | None = None


def admit(request: HttpRequest, *, scopes: Collection[str], lacking: str) -> Admitted:
    """A token needs one of the scopes. Raises `AuthenticationRequired`, or `InsufficientScope` with `lacking`."""
    if request.headers.get("Authorization"):
        user, token = user_by_token(request, scopes=scopes, lacking=lacking)
        return Admitted(Caller(user_id=user.pk, bound_to=user.bound_to), TokenCheck(token))
    if _protected(request).status_code != HTTPStatus.OK:
        raise AuthenticationRequired(_("The page is out of date. Reload it and try again."))
    caller = caller_of(request)
    if caller.user_id is None or caller.is_visitor:
        if not may_visitors_chat():
            raise AuthenticationRequired(_("Log in to chat here."))
        return Admitted(caller)
    return Admitted(caller, SessionCheck(request.session.session_key, caller.user_id))


@csrf_protect
def _protected(request: HttpRequest) -> HttpResponse:
    """Answers 200 where Django's check of the CSRF token lets the request pass."""
    return HttpResponse()


# RFC 7240: the answer also as HTML, block by block.
PREFER_BLOCKS = "blocks"


@streaming("GET")
async def turn_events(request: HttpRequest, turn_id: str) -> HttpResponseBase:
    after = request.headers.get("Last-Event-ID", "")
    if len(after) > LONGEST_REFERENCE:
        raise InvalidInput(_("The Last-Event-ID has at most %(count)s characters."), count=LONGEST_REFERENCE)
    turn, admitted = await sync_to_async(_find)(request, turn_id, scope="read")
    lease = await sync_to_async(rate_limits.begin_stream)(request, user_id=admitted.caller.user_id)
    return event_stream(_followed(request, turn, admitted, after), lease)


def _followed(request: HttpRequest, turn: Turn, admitted: Admitted, after: str = "") -> AsyncIterator[bytes]:
    # Imported here because it imports the agent loop, which no other page should wait for at start-up.
    from chat.answers.hub import follow_answer
    from chat.answers.log import EventId

    return follow_answer(
        turn=turn,
        caller=admitted.caller,
        # An unknown one means from the start.
        after=EventId.parse(after),
        is_authorized=admitted.is_authorized,
        # The chat's own page gets HTML while the answer is written; other clients render `delta` themselves.
        with_blocks=request.headers.get("Prefer") == PREFER_BLOCKS,
        language=page_language(request.headers),
    )


@streaming("POST")
async def stop_turn(request: HttpRequest, turn_id: str) -> HttpResponseBase:
    turn, admitted = await sync_to_async(_find)(request, turn_id, scope="write")
    from chat.answers.hub import stop_answer

    stopped = await stop_answer(turn=turn, caller=admitted.caller)
    if stopped is None:
        raise NotFound
    return JsonResponse({"turnId": stopped.pk, "status": stopped.status})


@streaming("POST")
async def decide_call(request: HttpRequest, turn_id: str, call_id: str) -> HttpResponseBase:
    """In its own task: once the last call is decided, the answer goes on also for a client who has left."""
    left = await asyncio.shield(asyncio.create_task(_go_on(request, turn_id, call_id)))
    return JsonResponse({"left": left}, status=HTTPStatus.ACCEPTED)


async def _go_on(request: HttpRequest, turn_id: str, call_id: str) -> int:
    decided, admitted = await sync_to_async(_decide)(request, turn_id, call_id)
    if decided.paused is not None:
        _start(decided.turn, admitted, paused=decided.paused)
    return decided.left


def _start(turn: Turn, admitted: Admitted, **about: Any) -> None:
    # Imported here because they import the agent loop, which no other page should wait for at start-up.
    from chat.answers.hub import start_answer
    from chat.answers.writer import AnswerWriter

    start_answer(AnswerWriter(turn, admitted.caller, is_authorized=admitted.is_authorized, **about))


def _decide(request: HttpRequest, turn_id: str, call_id: str) -> tuple[Decided, Admitted]:
    turn, admitted = _find(request, turn_id, scope="write")
    if not isinstance(admitted.is_authorized, SessionCheck):
        raise InsufficientScope(_("A call is allowed by its person in the browser, and by no program."))
    decision = validate(Decision, parse_json(body_of(request)))
    with acting_as(admitted.caller):
        return decide(decision, caller=admitted.caller, turn_id=turn.pk, call_id=call_id), admitted


@streaming("GET")
async def answering(request: HttpRequest) -> HttpResponseBase:
    return JsonResponse({"answers": await sync_to_async(_answering)(request)})


def _find(request: HttpRequest, turn_id: str, *, scope: str) -> tuple[Turn, Admitted]:
    """Raises the same `NotFound` for a malformed id, an unknown one and another user's."""
    admitted = _admit_to_answer(request, scope)[0]
    with acting_as(admitted.caller):
        return get_turn_by_id(caller=admitted.caller, turn_id=turn_id), admitted


def _answering(request: HttpRequest) -> list[dict[str, object]]:
    caller = _admit_to_answer(request, "read")[0].caller
    with acting_as(caller):
        found = open_answers(caller=caller)
    return [{"turnId": turn_id, "conversationId": str(conversation_id)} for turn_id, conversation_id in found]


def _admit_to_answer(request: HttpRequest, scope: str) -> tuple[Admitted, int]:
    """With the id of the user, which may be a visitor's."""
    admitted = admit(request, scopes={scope, "chat"}, lacking=f"This token lacks the scope `{scope}`.")
    user_id = admitted.caller.user_id
    if user_id is None:
        raise AuthenticationRequired
    _count(request, admitted.caller, "api")
    return admitted, user_id


def _count(request: HttpRequest, caller: Caller, limit: str) -> None:
    """Visitors are counted by their address: a visitor without cookies is a new one each time."""
    counted = caller.user_id if caller.is_registered else None
    rate_limits.take_for(limit, user_id=counted, address=rate_limits.client_address(request))


@streaming("POST")
async def chat(request: HttpRequest) -> HttpResponseBase:
    # In its own task: a client who disconnects at this moment must not leave a turn without an answer.
    turn, admitted, lease = await asyncio.shield(asyncio.create_task(_open(request)))
    response = event_stream(_followed(request, turn, admitted), lease)
    # The first message of nobody makes its page that of a visitor.
    response[PAGE_PERSON_HEADER] = await sync_to_async(page_person_of)(request)
    if turn.is_replay:
        response[idempotency.REPLAYED] = "true"
    return response


async def _open(request: HttpRequest) -> tuple[Turn, Admitted, StreamLease]:
    turn, admitted, lease, newest_only = await sync_to_async(_begin)(request)
    if not turn.is_replay:
        _start(turn, admitted, newest_only=newest_only)
    return turn, admitted, lease


def _begin(request: HttpRequest) -> tuple[Turn, Admitted, StreamLease, bool]:
    """All checks that may refuse the request, in one step; then the message is saved. Returns `newest_only` last."""
    lacking = "A chat recalls and records: its token needs the scope `chat`, or `search` and `write`."
    admitted = admit(request, scopes={"chat"}, lacking=lacking)
    _count(request, admitted.caller, "chat")
    if not is_recall_mode() and not admitted.caller.is_registered:
        rate_limits.take_all(("visitors",))
    # Before anything is saved; a message that is refused gives it back.
    lease = rate_limits.begin_stream(request, user_id=admitted.caller.user_id)
    requested = validate(TurnRequest, parse_json(body_of(request)))
    key = request.headers.get(idempotency.HEADER)
    key = None if key is None else idempotency.clean_key(key)
    requested.check(admitted.caller)
    # A first message creates its visitor and logs them in; a refused message creates none.
    is_first = admitted.caller.user_id is None
    with transaction.atomic() if is_first else nullcontext():
        if is_first:
            visitor = User.objects.create_visitor()
            admitted = Admitted(Caller(user_id=visitor.pk, is_visitor=True))
        with acting_as(admitted.caller):
            turn = create_turn(requested, caller=admitted.caller, now=timezone.now(), key=key)
            if not turn.is_replay:
                refuse_one_too_many(caller=admitted.caller, now=timezone.now())
        if is_first:
            login(request, visitor)
    changes.tell(admitted.caller, turn.conversation_id)
    if admitted.caller.is_visitor:
        # As long as the visitor's messages are kept.
        request.session.set_expiry(timedelta(days=settings.VISITOR_DAYS))
    return turn, admitted, lease, requested.newest_only


# The interval of keep-alive comments.
KEEP_ALIVE_SECONDS = 15.0


@streaming("GET")
async def changed_chats(request: HttpRequest) -> HttpResponseBase:
    """For a token, or a session, also a visitor's. Without Redis the stream is open and silent."""
    admitted, user_id, lease = await sync_to_async(_admit_to_changes)(request)
    # A visitor's session ends too: with the registration, or a log-in to another account.
    is_authorized = admitted.is_authorized or SessionCheck(request.session.session_key, user_id)
    keep_alive = KEEP_ALIVE_SECONDS, event_streams.KEEP_ALIVE
    return event_stream(while_authorized(_events(user_id), is_authorized, keep_alive=keep_alive), lease)


def _admit_to_changes(request: HttpRequest) -> tuple[Admitted, int, StreamLease]:
    admitted, user_id = _admit_to_answer(request, "read")
    if admitted.caller.bound_to:
        # They name chats of every project.
        raise InsufficientScope(BOUND_ELSEWHERE)
    return admitted, user_id, rate_limits.begin_stream(request, user_id=user_id)


async def _events(user_id: int) -> AsyncIterator[bytes]:
    """`changed` events with `{conversationId}`, after an `open` one."""
    with changes_of(user_id) as queue:
        yield event_streams.encode("open", {})
        while (changed := await queue.get()) is not None:
            yield event_streams.encode("changed", {"conversationId": changed})
