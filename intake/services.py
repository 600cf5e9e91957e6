"""Recording what is said: every write to conversations and turns goes through here, in a transaction of its own."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models import Q

from core.errors import AuthenticationRequired, InvalidInput, NotFound
from core.isolation.caller import Caller
from intake.models import Conversation, Turn
from intake.models.conversations import TITLE_LENGTH

MAX_MESSAGE_LENGTH = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How an answer ended, and what of it there is to keep."""

    text: str
    status: Turn.Status
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    is_recall: bool = False
    error: dict[str, Any] | None = None


def begin_turn(*, caller: Caller, message: str, conversation_id: UUID | None, now: datetime) -> Turn:
    """Save what somebody said, before any model is asked.

    The same message sent again after a failure takes up the failed turn, so that a retry leaves no trace of it.
    Raises `InvalidInput` for a blank or overlong message, `NotFound` for a conversation that is not the caller's.
    """
    message = clean_message(message)
    try:
        return _begin_turn(caller, message, conversation_id, now)
    except IntegrityError:
        # The account was deleted after the caller had been let in.
        raise AuthenticationRequired from None


def _begin_turn(caller: Caller, message: str, conversation_id: UUID | None, now: datetime) -> Turn:
    with transaction.atomic(savepoint=False):
        conversation = _open_conversation(caller, conversation_id, message, now)
        failed = _failed_turn(conversation, message)
        if failed is None:
            turn = _add_turn(conversation, user_message=message, said_at=now)
            # Whether the person is still there is asked here, not when the caller's transaction ends.
            connection.check_constraints()
            return turn
        return _take_up(failed)


def take_up_turn(*, caller: Caller, turn_id: int) -> Turn | None:
    """Open a turn of the caller's once more, to be answered anew; None unless it is its conversation's last, and has
    ended without a whole answer."""
    with transaction.atomic():
        # The conversation is locked before its turns, as everywhere.
        holding = Conversation.objects.for_caller(caller).filter(turns__pk=turn_id)
        conversation = holding.select_for_update(of=("self",)).first()
        if conversation is None:
            return None
        unanswered = Q(pk=turn_id, status__in=(Turn.Status.FAILED, Turn.Status.INTERRUPTED))
        turn = conversation.turns.filter(unanswered, turn_number=conversation.turn_count).first()
        return None if turn is None else _take_up(turn)


def save_progress(*, turn_id: int, text: str, tool_calls: list[dict[str, Any]], now: datetime) -> None:
    """Keep what has been written and done so far, so that a killed server loses a moment and no more."""
    streaming = Turn.objects.filter(pk=turn_id, status=Turn.Status.STREAMING)
    streaming.update(assistant_message=without_nul(text), tool_calls=tool_calls, updated_at=now)


def finish_turn(*, turn_id: int, answer: Answer) -> Turn | None:
    """Close a turn with its answer; one already closed, or deleted meanwhile, stays as it is and gives None."""
    with transaction.atomic(savepoint=False):
        turn = Turn.objects.select_for_update().filter(pk=turn_id, status=Turn.Status.STREAMING).first()
        if turn is None:
            return None
        turn.assistant_message = without_nul(answer.text)
        turn.status = answer.status
        turn.tool_calls = answer.tool_calls
        turn.is_recall = answer.is_recall
        turn.error = answer.error
        turn.save(update_fields=["assistant_message", "status", "tool_calls", "is_recall", "error", "updated_at"])
        return turn


def save_exchange(*, conversation: Conversation, user_message: str, assistant_message: str, said_at: datetime) -> Turn:
    """Save a message and its answer at once, with the time they were written: for exchanges from elsewhere.

    Raises `Conversation.DoesNotExist`. If it fails, so does the transaction around it.
    """
    with transaction.atomic(savepoint=False):
        locked = Conversation.objects.select_for_update().get(pk=conversation.pk)
        turn = _add_turn(
            locked,
            user_message=without_nul(user_message),
            assistant_message=without_nul(assistant_message),
            status=Turn.Status.COMPLETE,
            said_at=said_at,
        )
    conversation.turn_count = turn.turn_number
    return turn


def close_abandoned_turns(*, now: datetime, idle: timedelta) -> int:
    """Close turns whose server died while it was answering; what they had is kept, and is indexed like any other."""
    abandoned = Turn.objects.filter(status=Turn.Status.STREAMING, updated_at__lt=now - idle)
    ids = list(abandoned.order_by("updated_at").values_list("pk", flat=True)[:1000])
    return sum(_interrupt(turn_id) for turn_id in ids)


def clean_message(message: str) -> str:
    """The message as it is kept; raises `InvalidInput` naming the field."""
    message = without_nul(message).strip()
    if not message:
        raise InvalidInput("The message is empty.", errors={"message": ["Write something."]})
    if len(message) > MAX_MESSAGE_LENGTH:
        limit = f"At most {MAX_MESSAGE_LENGTH:,} characters; this has {len(message):,}."
        raise InvalidInput("The message is too long.", errors={"message": [limit]})
    return message


def without_nul(text: str) -> str:
    """PostgreSQL keeps every character but this one."""
    return text.replace("\x00", "")


def title_from(message: str) -> str:
    """A title made of the first message: its first line, cut at a word."""
    line = " ".join(message.split("\n", 1)[0].split())
    if len(line) <= TITLE_LENGTH:
        return line
    return line[: TITLE_LENGTH - 1].rsplit(" ", 1)[0].rstrip(",;:") + "…"


def _open_conversation(caller: Caller, conversation_id: UUID | None, message: str, now: datetime) -> Conversation:
    if conversation_id is None:
        return Conversation.objects.create(
            user_id=caller.user_id,
            title=title_from(message),
            started_at=now,
            last_active_at=now,
        )
    try:
        return Conversation.objects.for_caller(caller).select_for_update().get(pk=conversation_id)
    except Conversation.DoesNotExist:
        raise NotFound from None


def _failed_turn(conversation: Conversation, message: str) -> Turn | None:
    latest = Q(turn_number=conversation.turn_count, status=Turn.Status.FAILED)
    return conversation.turns.filter(latest, user_message=message).first()


def _take_up(turn: Turn) -> Turn:
    turn.status, turn.assistant_message, turn.error = Turn.Status.STREAMING, "", None
    # What the earlier try has stored stays stored, and so can still be taken back.
    turn.tool_calls = [call for call in turn.tool_calls if "place" in call]
    turn.save()
    return turn


def _add_turn(conversation: Conversation, *, said_at: datetime, **fields: Any) -> Turn:
    """The next turn of a conversation whose row the caller has locked (or just made)."""
    conversation.turn_count += 1
    conversation.last_active_at = max(conversation.last_active_at, said_at)
    conversation.archived_at = None
    conversation.save(update_fields=["turn_count", "last_active_at", "archived_at"])
    return Turn.objects.create(
        conversation=conversation,
        user_id=conversation.user_id,
        turn_number=conversation.turn_count,
        said_at=said_at,
        **fields,
    )


def _interrupt(turn_id: int) -> bool:
    """The status alone: a worker does this, and may write nothing else of a turn."""
    with transaction.atomic():
        turn = Turn.objects.select_for_update().filter(pk=turn_id, status=Turn.Status.STREAMING).first()
        if turn is None:
            return False
        turn.status = Turn.Status.INTERRUPTED
        turn.save(update_fields=["status", "updated_at"])
        return True
