"""`POST /api/v1/intake/chat`: accepts a message and streams the answer as events."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Annotated, Self

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import login
from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from pydantic import Field, model_validator

from core import rate_limits
from core.errors import InvalidInput
from core.ids import parse_id
from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from core.rate_limits import StreamLease
from core.validation import LONGEST_REFERENCE, body_of, parse_json, stated, text_limit, validate
from intake import changes, idempotency
from intake.choices import ChatOptions, refuse_temporary
from intake.identity import PAGE_PERSON_HEADER, page_person_of
from intake.language_models import is_recall_mode
from intake.models import User
from intake.reading import LARGEST_NUMBER
from intake.repeating import Begun, begin_turn_once
from intake.running_answers import refuse_one_too_many
from intake.services import MAX_MESSAGE_LENGTH
from intake.versions import TurnRequest
from intake.views.admission import Admitted, StreamingView, admit, event_stream, refusal
from intake.views.answers import prefers_blocks

TurnNumber = Annotated[int, Field(ge=1, le=LARGEST_NUMBER)]


class ChatMessage(ChatOptions):
    """The request's body: a message, or what to do with a turn of the conversation, which is named by its number.

    What it says of the model and so on holds for the chat from now on.
    """

    message: Annotated[
        str | None,
        Field(
            description=f"What the person says: 1 to {MAX_MESSAGE_LENGTH:,} characters. Not with `regenerate` or "
            "`continue`.",
            json_schema_extra=text_limit(MAX_MESSAGE_LENGTH),
        ),
    ] = None
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

    @model_validator(mode="after")
    def _is_one_request(self) -> Self:
        about = [self.parent, self.edit, self.regenerate, self.resume]
        if sum(number is not None for number in about) > 1:
            raise stated("Give at most one of `parent`, `edit`, `regenerate` and `continue`.")
        if self.conversation_id is None and any(about):
            raise stated("A turn is named by its conversation: give `conversation_id`.")
        return self

    def as_request(self, caller: Caller) -> TurnRequest:
        """Raises `NotFound` for a malformed conversation id, `InvalidInput` for a message too many or too few, and for
        what cannot be chosen."""
        needs_message = self.regenerate is None and self.resume is None
        if needs_message != (self.message is not None):
            wanted = "Field required" if needs_message else "Not with `regenerate` or `continue`."
            raise InvalidInput(errors={"message": [wanted]})
        if self.conversation_id is not None:
            refuse_temporary(self)
        given = self.conversation_id
        return TurnRequest(
            message=self.message,
            conversation_id=None if given is None else parse_id(given),
            parent=self.parent,
            edit=self.edit,
            regenerate=self.regenerate,
            resume=self.resume,
            choices=self.as_choices(caller),
        )


class ChatView(StreamingView):
    async def post(self, request: HttpRequest) -> HttpResponseBase:
        # In its own task: a client who disconnects at this moment must not leave a turn without an answer.
        try:
            begun, admitted, lease = await asyncio.shield(asyncio.create_task(_open(request)))
        except Exception as error:
            return await sync_to_async(refusal)(request, error)
        from intake.chat import follow_answer, replay

        with_blocks = prefers_blocks(request)
        response = event_stream(
            replay(turn=begun.turn, with_blocks=with_blocks)
            if begun.turn.has_ended
            else follow_answer(
                turn=begun.turn, caller=admitted.caller, is_still_in=admitted.is_still_in, with_blocks=with_blocks
            ),
            lease,
        )
        # The first message of nobody makes its page that of a visitor.
        response[PAGE_PERSON_HEADER] = await sync_to_async(page_person_of)(request)
        if begun.is_replay:
            response[idempotency.REPLAYED] = "true"
        return response


async def _open(request: HttpRequest) -> tuple[Begun, Admitted, StreamLease]:
    begun, admitted, lease = await sync_to_async(_begin)(request)
    if not begun.is_replay:
        # Imported here because it imports the agent loop, which no other page should wait for at start-up.
        from intake.chat import start_answer

        start_answer(turn=begun.turn, caller=admitted.caller, is_still_in=admitted.is_still_in)
    return begun, admitted, lease


def _begin(request: HttpRequest) -> tuple[Begun, Admitted, StreamLease]:
    """All checks that may refuse the request, in one step; then the message is saved."""
    lacking = "A chat recalls and records: its token needs the scope `chat`, or `search` and `write`."
    admitted = admit(request, scopes={"chat"}, lacking=lacking)
    # Visitors are counted by their address: a visitor without cookies is a new one each time.
    counted = admitted.caller.user_id if admitted.caller.is_registered else None
    rate_limits.take_for("chat", user_id=counted, address=rate_limits.client_address(request))
    if not is_recall_mode() and not admitted.caller.is_registered:
        rate_limits.take_all(("visitors",))
    # Before anything is saved; a message that is refused gives it back.
    lease = rate_limits.begin_stream(request, user_id=admitted.caller.user_id)
    wanted = validate(ChatMessage, parse_json(body_of(request)))
    key = request.headers.get(idempotency.HEADER)
    begin = partial(
        begin_turn_once,
        key=None if key is None else idempotency.clean_key(key),
        wanted=wanted.as_request(admitted.caller),
        now=timezone.now(),
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
    return begun, admitted, lease


def _begin_as_visitor(request: HttpRequest, begin: Callable[..., Begun]) -> tuple[Admitted, Begun]:
    """A first message creates its visitor and logs them in; a refused message creates none."""
    with transaction.atomic():
        visitor = User.objects.create_visitor()
        caller = Caller(user_id=visitor.pk, is_visitor=True)
        with acting_as(caller):
            begun = begin(caller=caller)
        login(request, visitor)
    return Admitted(caller), begun
