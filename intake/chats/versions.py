"""Versions of turns, messages that are sent again, and the undoing of a tool call.

Versions of turns: another answer, an edited message, a continued answer, another path, a branch.

Everything happens under the lock of the conversation's row, like every other write to its turns.
"""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from core.errors import AuthenticationRequired, InvalidInput, NotFound, StillRunning
from core.isolation.acting import Caller
from core.text import gettext_noop as _
from core.text import shortened
from intake.chats import services
from intake.chats.idempotency import once
from intake.chats.services import NO_CHOICES, ChatChoices, TakeRoom
from intake.chats.tree import Tree, turns_of
from intake.models import Conversation, Turn
from intake.models.conversations import TITLE_LENGTH

STILL_WRITTEN = "This answer is still being written. Stop it first, or try again when it is done."
IS_WHOLE = _("This answer is complete. There is nothing to continue.")
BRANCH_TITLE = "{title} (branch)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """A request for an answer: a message, or one of the three operations on a turn of the conversation, by number.

    `parent`: the turn that the message follows (`services.NO_PARENT`: none; without it the end of the chosen path).
    `edit`: the turn of which the message is a new version. `regenerate`: the turn whose message is answered again.
    `resume`: the turn whose answer is continued. `choices`: how the chat is answered from this turn on. `newest_only`:
    with the newer half of the earlier messages that would fit.
    `attachments`: the files of a new message; a version of a message keeps those of its turn.
    """

    message: str | None = None
    conversation_id: UUID | None = None
    parent: int | None = None
    edit: int | None = None
    regenerate: int | None = None
    resume: int | None = None
    choices: ChatChoices = field(default_factory=ChatChoices)
    newest_only: bool = False
    attachments: tuple[UUID, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """As JSON, by which a repeated request is recognised."""
        fields = {name: value for name, value in asdict(self).items() if value is not None}
        fields |= {name: value for name, value in fields.pop("choices").items() if value is not None}
        if not self.choices.keeps_default_temperature:
            del fields["keeps_default_temperature"]
        if not self.newest_only:
            del fields["newest_only"]
        if attachments := fields.pop("attachments"):
            fields["attachments"] = [str(each) for each in attachments]
        return fields | ({"conversation_id": str(self.conversation_id)} if self.conversation_id else {})


def begin(requested: TurnRequest, *, caller: Caller, now: datetime, take_room: TakeRoom | None = None) -> Turn:
    """The turn to answer. `take_room` is that of `services.begin_turn`. Raises the errors of the request's function."""
    if requested.conversation_id is not None:
        where: dict[str, Any] = {
            "caller": caller,
            "conversation_id": requested.conversation_id,
            "choices": requested.choices,
        }
        if requested.resume is not None:
            return resume_answer(**where, turn_number=requested.resume)
        if requested.regenerate is not None:
            return regenerate(**where, turn_number=requested.regenerate, now=now, take_room=take_room)
        if requested.edit is not None:
            message = requested.message or ""
            return edit(**where, turn_number=requested.edit, message=message, now=now, take_room=take_room)
    return services.begin_turn(
        caller=caller,
        message=requested.message or "",
        conversation_id=requested.conversation_id,
        parent=requested.parent,
        choices=requested.choices,
        now=now,
        attachments=requested.attachments,
        take_room=take_room,
    )


def regenerate(
    *,
    caller: Caller,
    conversation_id: UUID,
    turn_number: int,
    now: datetime,
    choices: ChatChoices = NO_CHOICES,
    take_room: TakeRoom | None = None,
) -> Turn:
    """A version of a turn with the same message, to be answered again; a failed turn is resumed instead.

    Raises `NotFound` for a turn that is not the caller's, `StillRunning` while it is being answered.
    """
    return _version(caller, conversation_id, turn_number, message=None, now=now, choices=choices, take_room=take_room)


def edit(
    *,
    caller: Caller,
    conversation_id: UUID,
    turn_number: int,
    message: str,
    now: datetime,
    choices: ChatChoices = NO_CHOICES,
    take_room: TakeRoom | None = None,
) -> Turn:
    """A version of a turn with another message. Raises the errors of `regenerate`, `InvalidInput` for a bad message."""
    return _version(
        caller, conversation_id, turn_number, message=message, now=now, choices=choices, take_room=take_room
    )


def _version(
    caller: Caller,
    conversation_id: UUID,
    turn_number: int,
    *,
    message: str | None,
    now: datetime,
    choices: ChatChoices,
    take_room: TakeRoom | None,
) -> Turn:
    try:
        with transaction.atomic(savepoint=False):
            conversation = services.lock_conversation(caller, conversation_id, choices=choices)
            turn = _ended_turn(conversation, turn_number)
            user_message = turn.user_message
            if message is not None:
                user_message = services.clean_message(message, may_be_blank=turn.attachment_count > 0)
            is_retry = turn.status == Turn.Status.FAILED and user_message == turn.user_message
            if is_retry and not services.has_children(turn):
                return services.take_up(turn)
            parent = turn.parent_number or services.NO_PARENT
            return services.begin_in(
                conversation, message=user_message, parent=parent, now=now, version_of=turn, take_room=take_room
            )
    except IntegrityError:
        raise AuthenticationRequired from None


def resume_answer(
    *, caller: Caller, conversation_id: UUID, turn_number: int, choices: ChatChoices = NO_CHOICES
) -> Turn:
    """Reopen a turn to continue its answer, which broke off or was cut at the model's limit.

    The turn keeps its number and its link: users see one answer. Raises `NotFound`, `StillRunning`, and `InvalidInput`
    for a complete answer.
    """
    with transaction.atomic(savepoint=False):
        conversation = services.lock_conversation(caller, conversation_id, choices=choices)
        turn = _ended_turn(conversation, turn_number)
        if not turn.can_be_continued:
            raise InvalidInput(IS_WHOLE, errors={"resume": [IS_WHOLE]})
        return services.take_up(turn, keeps_text=True)


def choose_version(*, caller: Caller, conversation_id: UUID, turn_number: int) -> int:
    """Choose the path of a turn, to its newest end; returns the number of the turn at that end.

    Raises `NotFound`.
    """
    with transaction.atomic():
        conversation = services.lock_conversation(caller, conversation_id)
        tree = Tree.of(conversation)
        if turn_number not in tree:
            raise NotFound
        path = tree.path_through(turn_number, preferred_end=conversation.current_number)
        conversation.current_number = path[-1]
        conversation.save(update_fields=["current_number"])
    return path[-1]


def branch(*, caller: Caller, conversation_id: UUID, turn_number: int, now: datetime) -> Conversation:
    """A new conversation that continues from a turn. It shows that turn and those above it without copying them.

    It has the settings of its origin. Raises `NotFound`, `StillRunning` while the turn is being answered,
    `InvalidInput` for a turn of a temporary chat.
    """
    with transaction.atomic():
        origin = services.lock_conversation(caller, conversation_id)
        _ended_turn(origin, turn_number)
        if origin.expires_at is not None:
            raise InvalidInput("This chat is temporary. Keep it first, then branch from it.")
        return Conversation.objects.create(
            user_id=caller.user_id,
            title=_branch_title(origin.title),
            project=origin.project,
            branched_from=origin.pk,
            branched_after=turn_number,
            model=origin.model,
            instructions=origin.instructions,
            temperature=origin.temperature,
            uses_memory=origin.uses_memory,
            proposes=origin.proposes,
            started_at=now,
            last_active_at=now,
        )


def _ended_turn(conversation: Conversation, turn_number: int) -> Turn:
    turn = turns_of(conversation).filter(turn_number=turn_number).first()
    if turn is None:
        raise NotFound
    if not turn.has_ended:
        raise StillRunning(STILL_WRITTEN)
    return turn


def _branch_title(title: str) -> str:
    """The origin's title, cut if both parts do not fit, and marked only once."""
    mark = BRANCH_TITLE.format(title="")
    kept = title.removesuffix(mark)
    room = TITLE_LENGTH - len(mark)
    return BRANCH_TITLE.format(title=shortened(kept, room)) if kept else ""


# --- Handles a message that is sent again with the same key: it never creates a second turn ---


@dataclass(frozen=True, slots=True)
class Begun:
    """A turn to be answered; or an earlier turn whose answer is followed or replayed."""

    turn: Turn
    is_replay: bool = False


def begin_turn_once(
    *, caller: Caller, key: str | None, requested: TurnRequest, now: datetime, take_room: TakeRoom
) -> Begun:
    """`versions.begin`, unless the caller has sent this request with this key before. Then the earlier turn

    1. is followed from the start while it is being answered;
    2. is resumed and answered again, or continued if the request asks for that, if it has no complete answer and no
       later turn;
    3. is replayed as it is, otherwise.

    Raises the errors of `begin` and `once`, and `NotFound` if the turn has been deleted since.
    """

    def run() -> dict[str, int]:
        return {"turn": begin(requested, caller=caller, now=now, take_room=take_room).pk}

    if key is None:
        return Begun(begin(requested, caller=caller, now=now, take_room=take_room))
    kept, is_replay = once(caller=caller, key=key, operation="chat", data=requested.as_data(), run=run, now=now)
    turn_id = kept["turn"]
    if not is_replay:
        return Begun(Turn.objects.for_caller(caller).get(pk=turn_id))
    taken_up = services.take_up_turn(caller=caller, turn_id=turn_id, keeps_text=requested.resume is not None)
    if taken_up is not None:
        return Begun(taken_up)
    turn = Turn.objects.for_caller(caller).filter(pk=turn_id).first()
    if turn is None:
        raise NotFound("The message was sent before, and has been deleted since.")
    return Begun(turn, is_replay=True)
