"""The tree of a conversation's turns: up from a turn, and down to the newest end below one; and the addresses of turns.

The turn at its end names a path. Going up reads only the requested rows. Going down reads the numbers of the
conversation's whole tree, by one index-only scan.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any
from urllib.parse import quote
from uuid import UUID

from django.db import connection
from django.db.models import BooleanField, Q
from django.db.models.expressions import RawSQL
from django.urls import get_script_prefix, reverse

from core.isolation.acting import Caller
from intake.models import Conversation, Turn
from intake.models.conversations import TurnQuerySet

# More than any conversation has.
NO_LIMIT = 2**31 - 1
# How many conversations above a branch are read. A chain of more holds no turn that a page or a model is shown.
MOST_ORIGINS = 200

# The owner is named although the conversation implies it, because rows are distributed by owner.
_UPWARD = """
WITH RECURSIVE path AS (
    SELECT turn_number, parent_number, 1 AS length
      FROM intake_conversation_turns
     WHERE user_id = %s AND conversation_id = %s AND turn_number = %s
     UNION ALL
    SELECT turn.turn_number, turn.parent_number, path.length + 1
      FROM path JOIN intake_conversation_turns AS turn ON turn.turn_number = path.parent_number
     WHERE turn.user_id = %s AND turn.conversation_id = %s AND path.length < %s
)
SELECT turn_number FROM path
"""


class Tree:
    """The numbers of a conversation's turns, by parent."""

    def __init__(self, pairs: Iterable[tuple[int, int | None]]) -> None:
        """`pairs`: each turn's number with its parent's."""
        self.parents = dict(sorted(pairs))
        self.children: dict[int | None, list[int]] = defaultdict(list)
        for number, parent in self.parents.items():
            self.children[parent].append(number)

    @classmethod
    def of(cls, conversation: Conversation) -> "Tree":
        return cls(turns_of(conversation).values_list("turn_number", "parent_number"))

    def __contains__(self, number: object) -> bool:
        return number in self.parents

    def upward(self, number: int | None) -> Iterator[int]:
        """The turn, its parent, and so on to a first turn."""
        while number is not None and number in self.parents:
            yield number
            number = self.parents[number]

    def path_to(self, number: int) -> list[int]:
        """From a first turn to this one."""
        return list(self.upward(number))[::-1]

    def below(self, number: int) -> list[int]:
        """The turn with all turns that follow it in any version, each after its parent."""
        found = [number]
        for each in found:
            found.extend(self.children.get(each, ()))
        return found

    def newest_end(self, number: int | None) -> int | None:
        """The end of the path below a turn with the latest message; None if there are no turns.

        A child has a higher number than its parent, so the highest number below a turn has no children.
        """
        return max(self.below(number) if number is not None else self.parents, default=None)

    def versions_of(self, number: int) -> list[int]:
        """The turn and its siblings, in the order of saving."""
        return self.children[self.parents[number]]

    def path_through(self, number: int, *, preferred_end: int | None) -> list[int]:
        """The complete path through a turn: to `preferred_end` if that is below it, else to the newest end."""
        if preferred_end is not None and number in (path := self.path_to(preferred_end)):
            return path
        end = self.newest_end(number)
        return [] if end is None else self.path_to(end)


def end_of(conversation: Conversation) -> int | None:
    """The number at the end of the chosen path; of the newest turn if none is chosen; None if there are no turns."""
    if conversation.current_number is not None:
        return conversation.current_number
    return turns_of(conversation).order_by("-turn_number").values_list("turn_number", flat=True).first()


def turns_of(conversation: Conversation) -> TurnQuerySet:
    return Turn.objects.filter(user=conversation.user_id, conversation=conversation)


def turns_of_chat(caller: Caller, conversation_id: UUID | None, *, at_most: int = NO_LIMIT) -> list[Turn]:
    """All that was said in a chat and its versions, the newest first; in a branch then the turns above it."""
    conversation = Conversation.objects.for_caller(caller).filter(Q(pk=conversation_id)).first()
    if conversation is None:
        return []
    found = list(turns_of(conversation).order_by("-turn_number")[:at_most])
    return found + shared_turns(conversation, at_most=at_most - len(found))


def upward(*, user_id: int | None, conversation_id: UUID, number: int | None, at_most: int = NO_LIMIT) -> list[int]:
    """The numbers of a turn and its ancestors in the conversation, the turn first; empty if the turn does not exist."""
    if number is None or at_most <= 0:
        return []
    parameters = _parameters(user_id, conversation_id, number, at_most)
    with connection.cursor() as cursor:
        cursor.execute(_UPWARD, parameters)
        return [row[0] for row in cursor.fetchall()]


def _parameters(user_id: int | None, conversation_id: UUID, number: int, at_most: int) -> tuple[Any, ...]:
    return (user_id, conversation_id, number, user_id, conversation_id, at_most)


def ancestors(turn: Turn, *, at_most: int) -> list[Turn]:
    """The turns above one on its path, the nearest first; in a branch this continues in the original conversation."""
    found = path_up(turn.user_id, turn.conversation_id, turn.parent_number, at_most=at_most)
    return found + shared_turns(turn.conversation, at_most=at_most - len(found))


def shared_turns(conversation: Conversation, *, at_most: int) -> list[Turn]:
    """The turns above the first ones of a branch, the nearest first; empty without a branch or if deleted."""
    found: list[Turn] = []
    for branch, origin in pairwise(_origins(conversation)) if at_most > 0 else ():
        found += path_up(origin.user_id, origin.pk, branch.branched_after, at_most=at_most - len(found))
        if len(found) >= at_most:
            break
    return found


def going_up(turn: Turn) -> Iterator[Turn]:
    """The turns above one on its path, the nearest first, read as far as they are taken; in a branch this continues in
    the original conversation.
    """
    for conversation, end in _paths_above(turn):
        number = end
        while number is not None:
            found = path_up(turn.user_id, conversation.pk, number, at_most=50)
            yield from found
            number = found[-1].parent_number if len(found) == 50 else None


def keys_above(turn: Turn) -> list[tuple[UUID, int]]:
    """The conversations and numbers of all turns above one on its path, the nearest first, without their texts."""
    return [
        (conversation.pk, each)
        for conversation, number in _paths_above(turn)
        for each in upward(user_id=turn.user_id, conversation_id=conversation.pk, number=number)
    ]


def _paths_above(turn: Turn) -> Iterator[tuple[Conversation, int | None]]:
    """The conversations of a path, each with the number at its end: the turn's own, and those that it branched from."""
    end = turn.parent_number
    for conversation in _origins(turn.conversation):
        yield conversation, end
        end = conversation.branched_after


def _origins(conversation: Conversation) -> Iterator[Conversation]:
    """The conversation, then those that it branched from, read as far as they are taken.

    `branched_from` has no foreign key, so rows may form a ring: no conversation is read twice.
    """
    visited: set[UUID | None] = {None}
    found: Conversation | None = conversation
    while found is not None:
        yield found
        visited.add(found.pk)
        goes_on = found.branched_from not in visited and len(visited) <= MOST_ORIGINS
        origin = Conversation.objects.filter(Q(pk=found.branched_from), user=found.user_id)
        found = origin.first() if goes_on else None


def leads_to(conversation: Conversation, requested: UUID) -> bool:
    """Whether `requested` is this conversation, or one above it; true for a chain too long to read."""
    line = list(_origins(conversation))
    return len(line) >= MOST_ORIGINS or any(requested in (each.pk, each.branched_from) for each in line)


def path_up(user_id: int | None, conversation_id: UUID, number: int | None, *, at_most: int) -> list[Turn]:
    """A turn and its ancestors in its conversation, the turn first."""
    if number is None or at_most <= 0:
        return []
    parameters = _parameters(user_id, conversation_id, number, at_most)
    on_path = RawSQL(f"turn_number IN ({_UPWARD})", parameters, output_field=BooleanField())  # noqa: S611 - constant SQL
    turns = Turn.objects.filter(on_path, user=user_id, conversation=conversation_id)
    return list(turns.order_by("-turn_number"))


def versions(conversation: Conversation, turns: Collection[Turn]) -> dict[int, list[int]]:
    """By the number of each turn: the numbers of all its versions, itself included, in the order of saving."""
    parents = {turn.parent_number for turn in turns}
    siblings = Q(parent_number__in=parents - {None})
    if None in parents:
        siblings |= Q(parent_number=None)
    found = turns_of(conversation).filter(siblings).in_order().values_list("parent_number", "turn_number")
    by_parent: dict[int | None, list[int]] = defaultdict(list)
    for parent, number in found if parents else ():
        by_parent[parent].append(number)
    return {turn.turn_number: by_parent[turn.parent_number] for turn in turns}


_AN_ID = "CONVERSATION"


def conversation_path(conversation_id: UUID | str, *, turn_number: int | None = None, words: str = "") -> str:
    """The address of a conversation; with a turn, scrolled to it, and with some of its words, to these.

    The query makes the server include the turn, however old it is; the fragment makes the browser scroll there. A
    browser's own text fragments (`:~:text=`) would scroll to the first turn with the words, and do not work from a
    script.
    """
    path = _path_of_one(get_script_prefix()).replace(_AN_ID, quote(str(conversation_id), safe=""))
    at = f"&at={quote(words, safe='')}" if words else ""
    return path if turn_number is None else f"{path}?turn={turn_number}{at}#turn-{turn_number}"


def undo_path(conversation_id: UUID | str, *, turn_number: int, call_id: str) -> str:
    """The address for undoing a turn's tool call, by POST."""
    return reverse("undo_tool_call", args=[conversation_id, turn_number, call_id])


def branch_path(turn: Turn) -> str:
    """The address for creating a branch from a turn, by POST."""
    return reverse("branch_conversation", args=[turn.conversation_id, turn.turn_number])


# Pages and results contain dozens of these addresses, which differ only in the id.
@cache
def _path_of_one(script_prefix: str) -> str:
    return reverse("intake:conversation", args=[_AN_ID])
