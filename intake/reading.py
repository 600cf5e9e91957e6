"""What a page shows of a person's conversations: always a bounded part, with the way to the rest."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self
from uuid import UUID

from django.db.models import Q

from intake.errors import NotFound
from intake.models import Conversation, Turn
from intake.models.conversations import Caller

CONVERSATIONS_PER_PAGE = 30
TURNS_PER_PAGE = 50
# A turn that was asked for is shown with some of what led to it.
TURNS_BEFORE_ASKED = 10


@dataclass(frozen=True, slots=True)
class Position:
    """Where a list of conversations, newest first, was left: after this one."""

    last_active_at: datetime
    conversation_id: UUID

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads what `str` writes; raises `NotFound` for anything else."""
        moment, _, conversation_id = text.partition("_")
        try:
            position = cls(datetime.fromisoformat(moment), UUID(conversation_id))
        except ValueError:
            raise NotFound from None
        if position.last_active_at.tzinfo is None:
            raise NotFound
        return position

    def __str__(self) -> str:
        return f"{self.last_active_at.isoformat()}_{self.conversation_id}"

    def later_in_list(self) -> Q:
        same_moment = Q(last_active_at=self.last_active_at, id__gte=self.conversation_id)
        return Q(last_active_at__lte=self.last_active_at) & ~same_moment


@dataclass(frozen=True, slots=True)
class ConversationList:
    """One page of conversations, newest first; `more` is where the next page begins, if there is one."""

    conversations: list[Conversation]
    more: Position | None


@dataclass(frozen=True, slots=True)
class TurnWindow:
    """Consecutive turns of a conversation.

    `earlier`: the first one's number, if there are turns before it; `later`: the number after the last one's, likewise.
    """

    turns: list[Turn]
    earlier: int | None
    later: int | None


def list_conversations(*, caller: Caller, after: Position | None = None) -> ConversationList:
    found = Conversation.objects.for_caller(caller).newest_first()
    if after is not None:
        found = found.filter(after.later_in_list())
    rows = list(found[: CONVERSATIONS_PER_PAGE + 1])
    page = rows[:CONVERSATIONS_PER_PAGE]
    more = Position(page[-1].last_active_at, page[-1].id) if len(rows) > len(page) else None
    return ConversationList(page, more)


def get_conversation(*, caller: Caller, conversation_id: str) -> Conversation:
    """Raises `NotFound` alike for what is malformed, nobody's or somebody else's."""
    try:
        return Conversation.objects.for_caller(caller).get(pk=UUID(conversation_id))
    except (ValueError, Conversation.DoesNotExist):
        raise NotFound from None


def turns_to_show(*, conversation: Conversation, around: int | None = None, before: int | None = None) -> TurnWindow:
    """The latest turns; or those around one that is not among them; or those before one."""
    count = conversation.turn_count
    first = max(1, count - TURNS_PER_PAGE + 1)
    if before is not None:
        before = min(before, count + 1)
        first = before - TURNS_PER_PAGE
    elif around is not None and around < first:
        first = around - TURNS_BEFORE_ASKED
    first = max(1, first)
    last = min(count, first + TURNS_PER_PAGE - 1, before - 1 if before is not None else count)
    # The owner is named although the conversation implies it: rows are distributed by owner.
    turns = Turn.objects.filter(conversation=conversation, user=conversation.user_id, turn_number__range=(first, last))
    return TurnWindow(
        turns=list(turns.in_order()),
        earlier=first if first > 1 else None,
        later=last + 1 if last < count else None,
    )
