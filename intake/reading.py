"""What is shown of a person's conversations, on a page or as a result: always a bounded part."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from core.errors import NotFound
from core.isolation.caller import Caller
from core.pagination import Position
from intake.models import Conversation, Turn, User
from intake.models.conversations import TurnQuerySet

CONVERSATIONS_PER_PAGE = 30
# Fifty long answers took a fifth of a second to make, most of it for turns that nobody scrolled up to.
TURNS_PER_PAGE = 20
TURNS_PER_ANSWER = 50
# A turn that was asked for is shown with some of what led to it.
TURNS_BEFORE_ASKED = 10
# No turn is numbered higher, and no integer of the database is larger.
LARGEST_NUMBER = 2**31 - 1
# The digits of a turn's id that a bigint holds whatever they are.
LONGEST_ID = 18
MOST_OPEN_ANSWERS = 100

_BEGINNINGS = """
SELECT turn.conversation_id, turn.turn_number, left(turn.user_message, %(length)s)
  FROM unnest(%(conversations)s::uuid[], %(numbers)s::int[]) AS wanted(conversation_id, turn_number)
  JOIN intake_conversation_turns AS turn USING (conversation_id, turn_number)
 WHERE turn.user_id = %(user_id)s
"""


@dataclass(frozen=True, slots=True)
class ConversationList:
    """One page of conversations, newest first; `more` is where the next page begins, if there is one."""

    conversations: list[Conversation]
    more: Position | None


@dataclass(frozen=True, slots=True)
class TurnWindow:
    """Consecutive turns of a conversation.

    `earlier`: the first one's number, if there are turns before it; `later`: the next one's number, likewise.
    """

    turns: list[Turn]
    earlier: int | None
    later: int | None


def list_conversations(*, caller: Caller, after: Position | None = None) -> ConversationList:
    found = Conversation.objects.for_caller(caller).newest_first()
    if after is not None:
        found = found.filter(after.later_in_list(by="last_active_at"))
    rows = list(found[: CONVERSATIONS_PER_PAGE + 1])
    page = rows[:CONVERSATIONS_PER_PAGE]
    more = Position(page[-1].last_active_at, page[-1].id) if len(rows) > len(page) else None
    return ConversationList(page, more)


def as_conversation_id(text: str) -> UUID:
    """Raises `NotFound` for a malformed one, as for one that is not there."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound from None


def as_turn_number(text: str | None) -> int | None:
    """A turn's number from an address; what is not one is as if it were not there."""
    if text is None or not text.isdecimal():
        return None
    return min(int(text[:10]), LARGEST_NUMBER) or None


def get_conversation(*, caller: Caller, conversation_id: str) -> Conversation:
    """Raises `NotFound` alike for what is malformed, nobody's or somebody else's."""
    try:
        return Conversation.objects.for_caller(caller).get(pk=as_conversation_id(conversation_id))
    except Conversation.DoesNotExist:
        raise NotFound from None


def get_turn(*, caller: Caller, conversation_id: UUID, turn_number: int) -> Turn:
    """Raises `NotFound` alike for what is nobody's or somebody else's."""
    turn = Turn.objects.for_caller(caller).with_keys([(conversation_id, turn_number)]).first()
    if turn is None:
        raise NotFound
    return turn


def get_turn_by_id(*, caller: Caller, turn_id: str) -> Turn:
    """Raises `NotFound` alike for what is malformed, nobody's or somebody else's."""
    is_an_id = turn_id.isascii() and turn_id.isdecimal() and len(turn_id) <= LONGEST_ID
    turn = Turn.objects.for_caller(caller).filter(pk=int(turn_id)).first() if is_an_id else None
    if turn is None:
        raise NotFound
    return turn


def open_answers(*, caller: Caller) -> list[tuple[int, UUID]]:
    """The ids of the caller's turns that are being answered, each with its conversation's."""
    being_answered = Turn.objects.for_caller(caller).filter(status=Turn.Status.STREAMING)
    return list(being_answered.order_by("pk").values_list("pk", "conversation_id")[:MOST_OPEN_ANSWERS])


def beginnings(*, user: User, keys: Collection[tuple[UUID, int]], length: int) -> dict[tuple[UUID, int], str]:
    """By (conversation, turn number), for those of the keys that are turns of the person's: what they said, cut off."""
    if not keys:
        return {}
    parameters: dict[str, Any] = {
        "user_id": user.pk,
        "conversations": [conversation_id for conversation_id, _ in keys],
        "numbers": [number for _, number in keys],
        "length": length,
    }
    with connection.cursor() as cursor:
        cursor.execute(_BEGINNINGS, parameters)
        return {(conversation_id, number): text for conversation_id, number, text in cursor.fetchall()}


def turns_to_show(
    *, conversation: Conversation, at_most: int, around: int | None = None, before: int | None = None
) -> TurnWindow:
    """The latest turns; or those around one that is not among them; or those before one."""
    # The owner is named although the conversation implies it: rows are distributed by owner.
    turns = Turn.objects.filter(conversation=conversation, user=conversation.user_id)
    window = _ending(turns, before, at_most)
    is_earlier = around is not None and window.turns and around < window.turns[0].turn_number
    if around is not None and before is None and is_earlier:
        window = _starting(turns, around - TURNS_BEFORE_ASKED, at_most)
    return window


def _ending(turns: TurnQuerySet, before: int | None, at_most: int) -> TurnWindow:
    """The last ones, or the last ones before a number; numbers may be missing where turns were deleted."""
    rows = turns if before is None else turns.filter(turn_number__lt=before)
    found = list(reversed(rows.order_by("-turn_number")[: at_most + 1]))
    shown = found[-at_most:]
    is_followed = before is not None and turns.filter(turn_number__gte=before).exists()
    return TurnWindow(
        turns=shown,
        earlier=shown[0].turn_number if len(found) > len(shown) else None,
        later=before if is_followed else None,
    )


def _starting(turns: TurnQuerySet, first: int, at_most: int) -> TurnWindow:
    found = list(turns.filter(turn_number__gte=first).in_order()[: at_most + 1])
    shown = found[:at_most]
    return TurnWindow(
        turns=shown,
        earlier=shown[0].turn_number if turns.filter(turn_number__lt=first).exists() else None,
        later=found[-1].turn_number if len(found) > len(shown) else None,
    )
