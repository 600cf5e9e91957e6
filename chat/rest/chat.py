"""The streaming endpoints: the chat, a running answer, a user's changes; and who is admitted to them.

`POST /api/v1/intake/chat`: accepts a message and streams the answer as events.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Annotated, Self

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import login
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.views.decorators.csrf import csrf_protect
from pydantic import Field, model_validator

from core import rate_limits, responses
from core.errors import AuthenticationRequired, InsufficientScope, InvalidInput, NotFound
from core.ids import parse_id
from core.isolation.acting import BOUND_ELSEWHERE, Caller, acting_as
from core.rate_limits import StreamLease
from core.responses import event_stream, streaming, user_by_token
from core.text import LONGEST_PROJECT, page_language, project_label
from core.validation import LONGEST_REFERENCE, body_of, checked, parse_json, stated, text_limit, validate
from intake.accounts.identity import PAGE_PERSON_HEADER, caller_of, page_person_of
from intake.attachments.services import MOST_OF_A_MESSAGE
from intake.chats import changes, idempotency
from intake.chats.arranging import NO_NAME
from intake.chats.changes import changes_of
from intake.chats.reading import LARGEST_NUMBER, get_turn_by_id, open_answers
from intake.chats.running import refuse_one_too_many
from intake.chats.services import MAX_MESSAGE_LENGTH
from intake.chats.versions import Begun, TurnRequest, begin_turn_once
from intake.llm.language_models import ChatOptions, is_recall_mode, refuse_temporary
from intake.models import Turn, User
from intake.models.users import may_visitors_chat
from intake.revocation import IsAuthorized, SessionCheck, TokenCheck, while_authorized
from memory import quotas

# --- Authenticates callers of streaming views: a token with its scopes, or a session (also a visitor's) with CSRF ---


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
        raise AuthenticationRequired("The page is out of date. Reload it and try again.")
    caller = caller_of(request)
    if caller.user_id is None or caller.is_visitor:
        if not may_visitors_chat():
            raise AuthenticationRequired("Log in to chat here.")
        return Admitted(caller)
    return Admitted(caller, SessionCheck(request.session.session_key, caller.user_id))


@csrf_protect
def _protected(request: HttpRequest) -> HttpResponse:
    """Answers 200 where Django's check of the CSRF token lets the request pass."""
    return HttpResponse()


# --- Endpoints of a running answer: `GET …/turns/{id}/events` follows it, `POST …/turns/{id}/stop` ends it ---
# `GET …/answering` lists the running answers, so that the page can mark their chats.

# RFC 7240: the answer also as HTML, block by block.
PREFER_BLOCKS = "blocks"
LIMIT = "api"


@streaming("GET")
async def turn_events(request: HttpRequest, turn_id: str) -> HttpResponseBase:
    after = _last_event_id(request)
    turn, admitted = await sync_to_async(_find)(request, turn_id, scope="read")
    lease = await sync_to_async(rate_limits.begin_stream)(request, user_id=admitted.caller.user_id)
    # Imported here because it imports the agent loop, which no other page should wait for at start-up.
    from chat.answers.hub import follow_answer
    from chat.answers.log import EventId

    events = follow_answer(
        turn=turn,
        caller=admitted.caller,
        after=EventId.parse(after),
        is_authorized=admitted.is_authorized,
        with_blocks=prefers_blocks(request),
        language=page_language(request.headers),
    )
    return event_stream(events, lease)


@streaming("POST")
async def stop_turn(request: HttpRequest, turn_id: str) -> HttpResponseBase:
    turn, admitted = await sync_to_async(_find)(request, turn_id, scope="write")
    from chat.answers.hub import stop_answer

    stopped = await stop_answer(turn=turn, caller=admitted.caller)
    if stopped is None:
        raise NotFound
    return _private({"turnId": stopped.pk, "status": stopped.status})


@streaming("GET")
async def answering(request: HttpRequest) -> HttpResponseBase:
    return _private({"answers": await sync_to_async(_answering)(request)})


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
    admitted = _admit_to_answer(request, scope)
    with acting_as(admitted.caller):
        return get_turn_by_id(caller=admitted.caller, turn_id=turn_id), admitted


def _answering(request: HttpRequest) -> list[dict[str, object]]:
    caller = _admit_to_answer(request, "read").caller
    with acting_as(caller):
        found = open_answers(caller=caller)
    return [{"turnId": turn_id, "conversationId": str(conversation_id)} for turn_id, conversation_id in found]


def _admit_to_answer(request: HttpRequest, scope: str) -> Admitted:
    admitted = admit(request, scopes={scope, "chat"}, lacking=f"This token lacks the scope `{scope}`.")
    caller = admitted.caller
    if caller.user_id is None:
        raise AuthenticationRequired
    counted = caller.user_id if caller.is_registered else None
    rate_limits.take_for(LIMIT, user_id=counted, address=rate_limits.client_address(request))
    return admitted


def _private(data: dict[str, object]) -> HttpResponse:
    return JsonResponse(data, status=HTTPStatus.OK, headers={"Cache-Control": "private, no-store"})


# --- `POST /api/v1/intake/chat` ---

TurnNumber = Annotated[int, Field(ge=1, le=LARGEST_NUMBER)]


class ChatMessage(ChatOptions):
    """The request's body: a message, or what to do with a turn of the conversation, which is named by its number.

    What it says of the model and so on holds for the chat from now on.
    """

    message: Annotated[
        str | None,
        Field(
            description=f"What the person says: 1 to {MAX_MESSAGE_LENGTH:,} characters, or none with files. Not with "
            "`regenerate` or `continue`.",
            json_schema_extra=text_limit(MAX_MESSAGE_LENGTH),
        ),
    ] = None
    attachments: Annotated[
        list[Annotated[str, Field(max_length=LONGEST_REFERENCE)]],
        Field(
            max_length=MOST_OF_A_MESSAGE,
            description="The ids of files that were uploaded for this message, in its order. Another version of a "
            "message keeps its files.",
        ),
    ] = []
    conversation_id: Annotated[
        str | None, Field(description="The conversation to go on with, if any.", max_length=LONGEST_REFERENCE)
    ] = None
    parent: Annotated[
        int | None,
        Field(
            ge=0,
            le=LARGEST_NUMBER,
            description="The turn that the message follows, 0 for none. By default the end of the chosen path.",
        ),
    ] = None
    edit: Annotated[
        TurnNumber | None, Field(description="The turn of which the message is another version, answered anew.")
    ] = None
    regenerate: Annotated[
        TurnNumber | None, Field(description="The turn whose message is answered once more, as another version.")
    ] = None
    resume: Annotated[
        TurnNumber | None,
        Field(
            alias="continue",
            description="The turn whose answer goes on where it broke off or was cut at the model's limit.",
        ),
    ] = None

    project: Annotated[
        str | None,
        Field(
            description="The project of a new conversation, if it belongs to one.",
            json_schema_extra=text_limit(LONGEST_PROJECT),
        ),
    ] = None
    newest_only: Annotated[
        bool,
        Field(
            description="The model gets only the newer half of the earlier messages that would fit: for a conversation "
            "that was longer than its window."
        ),
    ] = False

    @model_validator(mode="after")
    def _is_one_request(self) -> Self:
        about = [self.parent, self.edit, self.regenerate, self.resume]
        if sum(number is not None for number in about) > 1:
            raise stated("Give at most one of `parent`, `edit`, `regenerate` and `continue`.")
        if self.conversation_id is None and any(about):
            raise stated("A turn is named by its conversation: give `conversation_id`.")
        if self.attachments and any(about[1:]):
            raise stated("Files belong to a new message: not with `edit`, `regenerate` or `continue`.")
        if self.project and self.conversation_id is not None:
            raise stated("Only a new conversation takes `project`; a present one is moved.")
        return self

    def as_request(self, caller: Caller) -> TurnRequest:
        """Raises `NotFound` for a malformed conversation id, `InvalidInput` for a message too many or too few, and for
        what cannot be chosen."""
        needs_message = self.regenerate is None and self.resume is None
        if needs_message != (self.message is not None) and not self.attachments:
            requested = "Field required" if needs_message else "Not with `regenerate` or `continue`."
            raise InvalidInput(errors={"message": [requested]})
        if self.conversation_id is not None:
            refuse_temporary(self)
        named = self.conversation_id
        return TurnRequest(
            message=self.message,
            conversation_id=None if named is None else parse_id(named),
            parent=self.parent,
            edit=self.edit,
            regenerate=self.regenerate,
            resume=self.resume,
            choices=replace(self.as_choices(caller), project=self._project_for(caller)),
            newest_only=self.newest_only,
            attachments=tuple(map(parse_id, self.attachments)),
        )

    def _project_for(self, caller: Caller) -> str:
        if self.project and not caller.is_registered:
            raise InvalidInput(errors={"project": ["Register to use projects."]})
        label = project_label(
            checked(self.project or "", field="project", max_length=LONGEST_PROJECT, may_be_blank=True)
        )
        # In searches it would mean everything but the project.
        if label.startswith("-"):
            raise InvalidInput(errors={"project": [NO_NAME]})
        return label


@streaming("POST")
async def chat(request: HttpRequest) -> HttpResponseBase:
    # In its own task: a client who disconnects at this moment must not leave a turn without an answer.
    begun, admitted, lease = await asyncio.shield(asyncio.create_task(_open(request)))
    from chat.answers.hub import follow_answer, replay

    with_blocks, language = prefers_blocks(request), page_language(request.headers)
    response = event_stream(
        replay(turn=begun.turn, with_blocks=with_blocks, language=language)
        if begun.turn.has_ended
        else follow_answer(
            turn=begun.turn,
            caller=admitted.caller,
            is_authorized=admitted.is_authorized,
            with_blocks=with_blocks,
            language=language,
        ),
        lease,
    )
    # The first message of nobody makes its page that of a visitor.
    response[PAGE_PERSON_HEADER] = await sync_to_async(page_person_of)(request)
    if begun.is_replay:
        response[idempotency.REPLAYED] = "true"
    return response


async def _open(request: HttpRequest) -> tuple[Begun, Admitted, StreamLease]:
    begun, admitted, lease, newest_only = await sync_to_async(_begin)(request)
    if not begun.is_replay:
        # Imported here because it imports the agent loop, which no other page should wait for at start-up.
        from chat.answers.hub import start_answer

        start_answer(
            turn=begun.turn,
            caller=admitted.caller,
            is_authorized=admitted.is_authorized,
            newest_only=newest_only,
        )
    return begun, admitted, lease


def _begin(request: HttpRequest) -> tuple[Begun, Admitted, StreamLease, bool]:
    """All checks that may refuse the request, in one step; then the message is saved. Returns `newest_only` last."""
    lacking = "A chat recalls and records: its token needs the scope `chat`, or `search` and `write`."
    admitted = admit(request, scopes={"chat"}, lacking=lacking)
    # Visitors are counted by their address: a visitor without cookies is a new one each time.
    counted = admitted.caller.user_id if admitted.caller.is_registered else None
    rate_limits.take_for("chat", user_id=counted, address=rate_limits.client_address(request))
    if not is_recall_mode() and not admitted.caller.is_registered:
        rate_limits.take_all(("visitors",))
    # Before anything is saved; a message that is refused gives it back.
    lease = rate_limits.begin_stream(request, user_id=admitted.caller.user_id)
    requested = validate(ChatMessage, parse_json(body_of(request)))
    key = request.headers.get(idempotency.HEADER)
    begin = partial(
        begin_turn_once,
        key=None if key is None else idempotency.clean_key(key),
        requested=requested.as_request(admitted.caller),
        now=timezone.now(),
        take_room=quotas.take_message,
    )
    if admitted.caller.user_id is None:
        admitted, begun = _begin_as_visitor(request, begin)
    else:
        with acting_as(admitted.caller):
            begun = begin(caller=admitted.caller)
            if not begun.is_replay:
                refuse_one_too_many(caller=admitted.caller, now=timezone.now())
    changes.tell(admitted.caller, begun.turn.conversation_id)
    if admitted.caller.is_visitor:
        # As long as the visitor's messages are kept.
        request.session.set_expiry(timedelta(days=settings.VISITOR_DAYS))
    return begun, admitted, lease, requested.newest_only


def _begin_as_visitor(request: HttpRequest, begin: Callable[..., Begun]) -> tuple[Admitted, Begun]:
    """A first message creates its visitor and logs them in; a refused message creates none."""
    with transaction.atomic():
        visitor = User.objects.create_visitor()
        caller = Caller(user_id=visitor.pk, is_visitor=True)
        with acting_as(caller):
            begun = begin(caller=caller)
        login(request, visitor)
    return Admitted(caller), begun


# --- `GET /api/v1/intake/events`: streams the ids of the caller's changed chats while a page is open ---

# The interval of keep-alive comments.
KEEP_ALIVE_SECONDS = 15.0
SCOPES, LACKING = {"read", "chat"}, "Changes are told to a token with the scope `read`."


@streaming("GET")
async def changed_chats(request: HttpRequest) -> HttpResponseBase:
    """For a token, or a session, also a visitor's. Without Redis the stream is open and silent."""
    admitted, user_id, lease = await sync_to_async(_admit_to_changes)(request)
    # A visitor's session ends too: with the registration, or a log-in to another account.
    is_authorized = admitted.is_authorized or SessionCheck(request.session.session_key, user_id)
    return event_stream(while_authorized(_events(user_id), is_authorized), lease)


def _admit_to_changes(request: HttpRequest) -> tuple[Admitted, int, StreamLease]:
    admitted = admit(request, scopes=SCOPES, lacking=LACKING)
    user_id = admitted.caller.user_id
    if user_id is None:
        raise AuthenticationRequired
    if admitted.caller.bound_to:
        # They name chats of every project.
        raise InsufficientScope(BOUND_ELSEWHERE)
    counted = user_id if admitted.caller.is_registered else None
    rate_limits.take_for("api", user_id=counted, address=rate_limits.client_address(request))
    return admitted, user_id, rate_limits.begin_stream(request, user_id=user_id)


async def _events(user_id: int) -> AsyncIterator[bytes]:
    """`changed` events with `{conversationId}`, after an `open` one."""
    with changes_of(user_id) as queue:
        yield responses.encode("open", {})
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                    changed = await queue.get()
            except TimeoutError:
                yield responses.KEEP_ALIVE
                continue
            if changed is None:
                return
            yield responses.encode("changed", {"conversationId": changed})
