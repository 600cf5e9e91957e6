"""`POST /api/v1/intake/chat`: a message comes in, the answer leaves as a stream of events."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Annotated

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import login
from django.db import transaction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone
from pydantic import Field

from core import rate_limits
from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from core.validation import LONGEST_REFERENCE, Input, parse_json, text_limit, validate
from intake import idempotency
from intake.models import User
from intake.reading import as_conversation_id
from intake.repeating import Begun, begin_turn_once
from intake.running_answers import refuse_one_too_many
from intake.services import MAX_MESSAGE_LENGTH
from intake.views.admission import Admitted, StreamingView, admit, refusal
from intake.views.answers import event_stream, prefers_blocks


class ChatMessage(Input):
    """The request's body."""

    message: Annotated[
        str,
        Field(
            description=f"What the person says: 1 to {MAX_MESSAGE_LENGTH:,} characters.",
            json_schema_extra=text_limit(MAX_MESSAGE_LENGTH),
        ),
    ]
    conversation_id: Annotated[
        str | None, Field(description="The conversation to go on with, if any.", max_length=LONGEST_REFERENCE)
    ] = None


class ChatView(StreamingView):
    async def post(self, request: HttpRequest) -> HttpResponseBase:
        # In a task of its own: a client who leaves at this moment must not leave a turn that nobody answers.
        try:
            begun, admitted = await asyncio.shield(asyncio.create_task(_open(request)))
        except Exception as error:
            return await sync_to_async(refusal)(request, error)
        from intake.chat import follow_answer, replay

        with_blocks = prefers_blocks(request)
        response = event_stream(
            replay(turn=begun.turn, with_blocks=with_blocks)
            if begun.turn.has_ended
            else follow_answer(
                turn=begun.turn, caller=admitted.caller, is_still_in=admitted.is_still_in, with_blocks=with_blocks
            )
        )
        if begun.is_replay:
            response[idempotency.REPLAYED] = "true"
        return response


async def _open(request: HttpRequest) -> tuple[Begun, Admitted]:
    begun, admitted = await sync_to_async(_begin)(request)
    if not begun.is_replay:
        # Imported here because it brings the agent loop along, which no other page should wait for at start-up.
        from intake.chat import start_answer

        start_answer(turn=begun.turn, caller=admitted.caller, is_still_in=admitted.is_still_in)
    return begun, admitted


def _begin(request: HttpRequest) -> tuple[Begun, Admitted]:
    """Everything that may be refused, in one go: who, what, where; then the message is saved."""
    lacking = "A chat recalls and records: its token needs the scopes `search` and `write`."
    admitted = admit(request, scopes={"search", "write"}, lacking=lacking)
    # Visitors are counted by their address: one who forgets the cookies is somebody new.
    counted = admitted.caller.user_id if admitted.caller.is_registered else None
    rate_limits.take_for("chat", user_id=counted, address=rate_limits.client_address(request))
    if settings.LLM_MODEL and not admitted.caller.is_registered:
        rate_limits.take_all(("visitors",))
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
            if not begun.is_replay:
                refuse_one_too_many(caller=admitted.caller, now=timezone.now())
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
