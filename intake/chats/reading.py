"""Reads a window of the turns of a conversation, for a page or a result."""

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Subquery

from core.errors import NotFound
from core.ids import parse_id
from core.isolation.acting import Caller
from intake.chats.services import LARGEST_NUMBER
from intake.chats.tree import Tree, ancestors, end_of, path_up, shared_turns, turns_of, upward, versions
from intake.models import Conversation, Turn, User

# Fifty long answers took a fifth of a second to render, mostly for turns that no one scrolled to.
TURNS_PER_PAGE = 20

_BEGINNINGS = """
SELECT turn.conversation_id, turn.turn_number, left(turn.user_message, %(length)s),
       (SELECT project FROM intake_conversations WHERE user_id = %(user_id)s AND id = turn.conversation_id)
  FROM unnest(%(conversations)s::uuid[], %(numbers)s::int[]) AS wanted(conversation_id, turn_number)
  JOIN intake_conversation_turns AS turn USING (conversation_id, turn_number)
 WHERE turn.user_id = %(user_id)s
"""
_WITH_VERSIONS = """
SELECT id, current_number FROM intake_conversations
 WHERE user_id = %(user_id)s AND id = ANY(%(ids)s) AND has_versions AND current_number IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class TurnWindow:
    """Consecutive turns of one path through a conversation.

    `earlier`: the first one's number, if there are turns before it; `later`: the next one's number, if there is one.
    `versions`: by number, the numbers of each turn's versions, itself included.
    """

    turns: list[Turn]
    earlier: int | None
    later: int | None
    versions: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SharedTurns:
    """The turns above a branch's own: turns of the original conversation, and of its origins.

    `earlier`: the conversation and number of a turn before which there are more. `is_deleted`: the turn from which the
    branch continues was deleted.
    """

    turns: list[Turn]
    earlier: tuple[UUID, int] | None = None
    is_deleted: bool = False


def as_turn_number(text: str | None) -> int | None:
    """A turn's number from an address; an invalid one counts as missing."""
    if text is None or not text.isdecimal():
        return None
    return min(int(text[:10]), LARGEST_NUMBER) or None


def get_conversation(
    *, caller: Caller, conversation_id: str, also: Mapping[str, Subquery] | None = None
) -> Conversation:
    """With the attributes `also`, in the same statement. Raises the same `NotFound` for a malformed id, an unknown one
    and another user's.
    """
    try:
        return Conversation.objects.for_caller(caller).annotate(**(also or {})).get(pk=parse_id(conversation_id))
    except Conversation.DoesNotExist:
        raise NotFound from None


def get_turn(*, caller: Caller, conversation_id: UUID, turn_number: int) -> Turn:
    """Raises the same `NotFound` for a missing turn and another user's."""
    turn = Turn.objects.for_caller(caller).with_keys([(conversation_id, turn_number)]).first()
    if turn is None:
        raise NotFound
    return turn


def get_turn_by_id(*, caller: Caller, turn_id: str) -> Turn:
    """Raises the same `NotFound` for a malformed id, an unknown one and another user's."""
    # The number of digits that always fits into a bigint.
    is_an_id = turn_id.isascii() and turn_id.isdecimal() and len(turn_id) <= 18
    turn = Turn.objects.for_caller(caller).filter(pk=int(turn_id)).first() if is_an_id else None
    if turn is None:
        raise NotFound
    return turn


def open_answers(*, caller: Caller) -> list[tuple[int, UUID]]:
    """The ids of the caller's turns with a running answer, each with its conversation's id."""
    streaming = Turn.objects.for_caller(caller).filter(status=Turn.Status.STREAMING)
    return list(streaming.order_by("pk").values_list("pk", "conversation_id")[:100])


def beginnings(
    *, user: User, keys: Collection[tuple[UUID, int]], length: int
) -> dict[tuple[UUID, int], tuple[str, str]]:
    """The beginnings of the user's messages and the projects of their conversations, by (conversation, turn number).

    Only for those of the keys that exist.
    """
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
        return {(conversation_id, number): (text, project) for conversation_id, number, text, project in cursor}


def turns_to_show(
    *, conversation: Conversation, at_most: int, around: int | None = None, before: int | None = None
) -> TurnWindow:
    """The latest turns of the chosen path; or the turns around one, on its path; or the turns before one."""
    if before is not None:
        window = _before(conversation, before, at_most)
    else:
        window = _ending(conversation, end_of(conversation), at_most)
        if around is not None and around not in {turn.turn_number for turn in window.turns}:
            window = _around(conversation, around, at_most)
    return replace(window, versions=versions(conversation, window.turns))


def off_path(*, user: User, keys: Collection[tuple[UUID, int]]) -> set[tuple[UUID, int]]:
    """The turns that are not on the chosen path of their conversation, by (conversation, turn number)."""
    with connection.cursor() as cursor:
        cursor.execute(
            _WITH_VERSIONS, {"user_id": user.pk, "ids": list({conversation_id for conversation_id, _ in keys})}
        )
        ends = dict(cursor.fetchall())
    paths = {
        conversation_id: set(upward(user_id=user.pk, conversation_id=conversation_id, number=end))
        for conversation_id, end in ends.items()
    }
    return {key for key in keys if key[0] in paths and key[1] not in paths[key[0]]}


def turns_near(*, conversation: Conversation, around: int | None, on_each_side: int) -> TurnWindow:
    """A turn with its neighbours on its path; or, without a turn, as many at the end of the chosen path.

    `earlier` and `later` are the turns before and after these. For a deleted turn it uses its former position.
    """
    end = end_of(conversation)
    tree = Tree.of(conversation)
    is_there = around is not None and around in tree
    path = tree.path_through(around, preferred_end=end) if around is not None and is_there else tree.path_to(end or 0)
    if around is None:
        first, last = max(0, len(path) - 1 - 2 * on_each_side), len(path)
    else:
        place = bisect_left(path, around)
        first, last = max(0, place - on_each_side), place + on_each_side + is_there
    turns = turns_of(conversation).filter(turn_number__in=path[first:last]).in_order()
    return TurnWindow(
        list(turns),
        earlier=path[first - 1] if 0 < first <= len(path) else None,
        later=path[last] if last < len(path) else None,
    )


def shared_to_show(*, conversation: Conversation, at_most: int, before: Turn | None = None) -> SharedTurns | None:
    """The last shared turns above a branch's own, or those before one of them; None without a branch."""
    if conversation.branched_from is None:
        return None
    if before is None:
        found = shared_turns(conversation, at_most=at_most + 1)
    else:
        found = ancestors(before, at_most=at_most + 1)
    shown = found[:at_most][::-1]
    earlier = (shown[0].conversation_id, shown[0].turn_number) if len(found) > at_most else None
    return SharedTurns(shown, earlier, is_deleted=before is None and not found)


def _ending(conversation: Conversation, end: int | None, at_most: int) -> TurnWindow:
    """The last turns of the path that ends there."""
    found = path_up(conversation.user_id, conversation.pk, end, at_most=at_most + 1)[::-1]
    shown = found[-at_most:]
    return TurnWindow(shown, earlier=shown[0].turn_number if len(found) > len(shown) else None, later=None)


def _before(conversation: Conversation, number: int, at_most: int) -> TurnWindow:
    """The turns above one; if it was deleted, those of the chosen path with a lower number."""
    turn = turns_of(conversation).filter(turn_number=number).only("parent_number").first()
    if turn is not None:
        return replace(_ending(conversation, turn.parent_number, at_most), later=number)
    path = _path(conversation, end_of(conversation))
    above = [each for each in path if each < number]
    window = _ending(conversation, above[-1] if above else None, at_most)
    return replace(window, later=number if len(above) < len(path) else None)


def _around(conversation: Conversation, number: int, at_most: int) -> TurnWindow:
    """The path of a turn, from some turns before it; or to the end, if the turn is near it."""
    end = end_of(conversation)
    tree = Tree.of(conversation)
    path = tree.path_through(number, preferred_end=end) if number in tree else _path(conversation, end)
    place = bisect_left(path, number)
    if place >= len(path) - at_most:
        return _ending(conversation, path[-1] if path else None, at_most)
    # A requested turn is shown with some of the turns before it.
    first = max(0, place - 10)
    shown = path[first : first + at_most]
    turns = turns_of(conversation).filter(turn_number__in=shown).in_order()
    later = path[first + at_most] if first + at_most < len(path) else None
    return TurnWindow(list(turns), earlier=shown[0] if first > 0 else None, later=later)


def _path(conversation: Conversation, end: int | None) -> list[int]:
    return upward(user_id=conversation.user_id, conversation_id=conversation.pk, number=end)[::-1]
