"""Ways through the tree of a conversation's turns: up from a turn, down to the newest end below one.

A path is named by the turn at its end. Going up reads as many rows as are asked for; whatever looks down reads the tree
of the whole conversation, numbers alone, by one index-only scan.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Any
from uuid import UUID

from django.db import connection

from intake.models import Conversation, Turn
from intake.models.conversations import TurnQuerySet

# No conversation has as many turns.
NO_LIMIT = 2**31 - 1

# The owner is named although the conversation implies it: rows are distributed by owner.
_UPWARD = """
WITH RECURSIVE path AS (
    SELECT turn_number, parent_number, 1 AS length
      FROM intake_conversation_turns
     WHERE user_id = %(user_id)s AND conversation_id = %(conversation_id)s AND turn_number = %(number)s
     UNION ALL
    SELECT turn.turn_number, turn.parent_number, path.length + 1
      FROM path JOIN intake_conversation_turns AS turn ON turn.turn_number = path.parent_number
     WHERE turn.user_id = %(user_id)s AND turn.conversation_id = %(conversation_id)s AND path.length < %(at_most)s
)
SELECT turn_number FROM path
"""


class Tree:
    """The numbers of a conversation's turns, by who follows whom."""

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
        """The turn with all that follow it in any version, each after its parent."""
        found = [number]
        for each in found:
            found.extend(self.children.get(each, ()))
        return found

    def newest_end(self, number: int | None) -> int | None:
        """The end of the path below a turn on which something was said last; None if there are no turns.

        A child has a higher number than its parent, so the highest number below a turn has no children.
        """
        return max(self.below(number) if number is not None else self.parents, default=None)

    def versions_of(self, number: int) -> list[int]:
        """The turn and its siblings, in the order of saving."""
        return self.children[self.parents[number]]

    def path_through(self, number: int, *, preferred_end: int | None) -> list[int]:
        """The whole path on which a turn lies: to `preferred_end` if that is below it, else to the newest end."""
        if preferred_end is not None and number in (path := self.path_to(preferred_end)):
            return path
        end = self.newest_end(number)
        return [] if end is None else self.path_to(end)


def turns_of(conversation: Conversation) -> TurnQuerySet:
    return Turn.objects.filter(user=conversation.user_id, conversation=conversation)


def upward(*, user_id: int | None, conversation_id: UUID, number: int | None, at_most: int = NO_LIMIT) -> list[int]:
    """The numbers of a turn and its ancestors in the conversation, the turn first; empty if it is not there."""
    if number is None:
        return []
    parameters: dict[str, Any] = {
        "user_id": user_id,
        "conversation_id": conversation_id,
        "number": number,
        "at_most": at_most,
    }
    with connection.cursor() as cursor:
        cursor.execute(_UPWARD, parameters)
        return [row[0] for row in cursor.fetchall()]


def versions(conversation: Conversation, turns: Collection[Turn]) -> dict[int, list[int]]:
    """By the number of each turn: the numbers of its versions, its own among them, in the order of saving."""
    parents = {turn.parent_number for turn in turns}
    siblings = turns_of(conversation)
    after = siblings.filter(parent_number__in=parents - {None})
    found = list(after.values_list("parent_number", "turn_number"))
    if None in parents:
        found += siblings.filter(parent_number=None).values_list("parent_number", "turn_number")
    by_parent: dict[int | None, list[int]] = defaultdict(list)
    for parent, number in sorted(found, key=lambda pair: pair[1]):
        by_parent[parent].append(number)
    return {turn.turn_number: by_parent[turn.parent_number] for turn in turns}
