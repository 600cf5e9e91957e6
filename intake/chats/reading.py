"""Reads conversations: a window of turns, the list of chats, the outline of a long chat.

Reads a limited part of a user's conversations, for a page or a result.
"""

import hashlib
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, tzinfo
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import F, Q, Subquery, Window
from django.db.models.functions import RowNumber

from core.errors import NotFound
from core.ids import parse_id
from core.isolation.acting import Caller
from core.text import cut, pg_text
from core.validation import Position, page_of
from intake.chats.services import LARGEST_NUMBER
from intake.chats.tree import Tree, ancestors, end_of, path_up, shared_turns, turns_of, upward, versions
from intake.models import Conversation, Project, Turn, User
from intake.models.conversations import ConversationQuerySet

# Fifty long answers took a fifth of a second to render, mostly for turns that no one scrolled to.
TURNS_PER_PAGE = 20
# What is rendered before a chat is first painted: more than a screen holds. The rest follows when one scrolls up.
FIRST_TURNS = 10
TURNS_PER_ANSWER = 50
# A requested turn is shown with some of the turns before it.
TURNS_BEFORE_ASKED = 10
# The number of digits that always fits into a bigint.
LONGEST_ID = 18
MOST_OPEN_ANSWERS = 100

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
    is_an_id = turn_id.isascii() and turn_id.isdecimal() and len(turn_id) <= LONGEST_ID
    turn = Turn.objects.for_caller(caller).filter(pk=int(turn_id)).first() if is_an_id else None
    if turn is None:
        raise NotFound
    return turn


def open_answers(*, caller: Caller) -> list[tuple[int, UUID]]:
    """The ids of the caller's turns with a running answer, each with its conversation's id."""
    streaming = Turn.objects.for_caller(caller).filter(status=Turn.Status.STREAMING)
    return list(streaming.order_by("pk").values_list("pk", "conversation_id")[:MOST_OPEN_ANSWERS])


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
    first = max(0, place - TURNS_BEFORE_ASKED)
    shown = path[first : first + at_most]
    turns = turns_of(conversation).filter(turn_number__in=shown).in_order()
    later = path[first + at_most] if first + at_most < len(path) else None
    return TurnWindow(list(turns), earlier=shown[0] if first > 0 else None, later=later)


def _path(conversation: Conversation, end: int | None) -> list[int]:
    return upward(user_id=conversation.user_id, conversation_id=conversation.pk, number=end)[::-1]


# --- Lists a user's chats: all of them by activity, or ordered (pinned, archived) ---

CONVERSATIONS_PER_PAGE = 30
# A scrolling list requests more at once: fewer waits, and still a small page.
CONVERSATIONS_PER_SCROLL = 100
# The most pinned chats listed above the others.
MAX_PINNED = 100
# More words cannot narrow a title of 80 characters further.
WORDS_OF_A_TITLE = 8


@dataclass(frozen=True, slots=True)
class ConversationList:
    """One page of conversations, newest first; `more` is the beginning of the next page, if there is one.

    `pinned` are listed above the first page and on no page, the last pinned one first.
    """

    conversations: list[Conversation]
    more: Position | None
    pinned: list[Conversation] = field(default_factory=list)

    @property
    def all(self) -> list[Conversation]:
        return [*self.pinned, *self.conversations]


def list_conversations(
    *,
    caller: Caller,
    after: Position | None = None,
    is_archived: bool = False,
    words: str = "",
    project: str | None = None,
) -> ConversationList:
    """The archived ones, or the others; with `words`, those whose title contains each of them.

    With `project` only its own ones. Titles of closed projects are found only so.
    """
    found = Conversation.objects.for_caller(caller).kept().filter(archived_at__isnull=not is_archived)
    if project is not None:
        found = found.filter(project=project)
    elif words:
        found = found.exclude(project__in=Project.objects.for_caller(caller).filter(is_closed=True).values("name"))
    for word in pg_text(words).split()[:WORDS_OF_A_TITLE]:
        found = found.filter(title__icontains=word)
    return _page(found, after, size=CONVERSATIONS_PER_PAGE)


def list_in_order(*, caller: Caller, after: Position | None = None, is_of_no_project: bool = False) -> ConversationList:
    """The chats that are not archived, with the pinned ones only above the first page.

    `is_of_no_project`: without those of projects, which have groups of their own; but with all pinned ones.
    """
    chats = Conversation.objects.for_caller(caller).kept().filter(archived_at__isnull=True)
    others = chats.filter(pinned_at__isnull=True, **({"project": ""} if is_of_no_project else {}))
    if after is not None:
        return _page(others, after, size=CONVERSATIONS_PER_SCROLL)
    # One statement for both. A union promises no order, so they are sorted here.
    size = CONVERSATIONS_PER_PAGE
    first = others.order_by("-last_active_at", "-id")[: size + 1]
    found = list(
        chats.filter(pinned_at__isnull=False).order_by("-pinned_at", "-id")[:MAX_PINNED].union(first, all=True)
    )
    found.sort(key=lambda chat: (chat.pinned_at or chat.last_active_at, chat.pk), reverse=True)
    pinned = [chat for chat in found if chat.pinned_at is not None]
    rows = [chat for chat in found if chat.pinned_at is None]
    more = Position(rows[size - 1].last_active_at, rows[size - 1].pk) if len(rows) > size else None
    return ConversationList(rows[:size], more, pinned)


def list_one(*, caller: Caller, conversation_id: UUID) -> ConversationList:
    """A list of this conversation, or an empty one, for a page that updates itself."""
    return ConversationList(list(Conversation.objects.for_caller(caller).kept().filter(pk=conversation_id)), more=None)


def _page(found: ConversationQuerySet, after: Position | None, *, size: int) -> ConversationList:
    page = page_of(found, by="last_active_at", after=after, size=size)
    return ConversationList(page.rows, page.more)


# --- The groups of the side bar: a user's projects with their latest chats ---

# The groups that the side bar shows: those that were active last, by name. The page of projects lists all.
MOST_GROUPS = 10
CHATS_PER_GROUP = 8

_GROUPS = """
SELECT coalesce(project.name, used.label), coalesce(project.colour, 'blue'), coalesce(project.is_closed, FALSE),
       coalesce(used.chats, 0), coalesce(used.unpinned, 0)
  FROM (SELECT name, colour, is_closed, created_at FROM intake_projects WHERE user_id = %(user_id)s) AS project
  FULL JOIN (SELECT project AS label, count(*) AS chats, count(*) FILTER (WHERE pinned_at IS NULL) AS unpinned,
                    max(last_active_at) AS latest
               FROM intake_conversations
              WHERE user_id = %(user_id)s AND project <> '' AND expires_at IS NULL AND archived_at IS NULL
              GROUP BY project) AS used
    ON used.label = project.name
 ORDER BY greatest(used.latest, project.created_at) DESC, 1
"""


def group_key(user_id: int, project: str) -> str:
    """How a browser's cookie names a group that is open, without its name."""
    return hashlib.blake2b(f"{user_id}:{project}".encode(), digest_size=5).hexdigest()


def list_groups(*, user: User, open_keys: Collection[str], current: str = "") -> tuple[list[dict[str, Any]], int]:
    """The groups by name, and how many projects there are. `current`: the project of the chat that is open, if of one.

    Each group has its `name`, `key`, `colour`, `is_closed`, the number of its `chats`, whether it is open (`is_open`),
    and then as `page` its latest ones; `more` says whether there are others.
    """
    with connection.cursor() as cursor:
        cursor.execute(_GROUPS, {"user_id": user.pk})
        rows = cursor.fetchall()
    shown = [*rows[:MOST_GROUPS], *(row for row in rows[MOST_GROUPS:] if row[0] == current)]
    groups: list[dict[str, Any]] = []
    for name, colour, is_closed, chats, unpinned in sorted(shown, key=lambda row: (row[0].casefold(), row[0])):
        key = group_key(user.pk, name)
        is_open = key in open_keys or name == current
        about = {"name": name, "key": key, "colour": colour, "is_closed": is_closed, "chats": chats}
        groups.append({**about, "is_open": is_open, "more": is_open and unpinned > CHATS_PER_GROUP})
    latest = _latest_of(user, [group["name"] for group in groups if group["is_open"] and group["chats"]])
    for group in groups:
        group["page"] = ConversationList(latest[group["name"]], more=None)
    return groups, len(rows)


def _latest_of(user: User, projects: Collection[str]) -> dict[str, list[Conversation]]:
    """The latest chats of each project without the pinned ones, which are listed above."""
    found: dict[str, list[Conversation]] = defaultdict(list)
    if projects:
        place = Window(RowNumber(), partition_by="project", order_by=[F("last_active_at").desc(), F("id").desc()])
        chats = Conversation.objects.for_user(user).kept().filter(archived_at=None, pinned_at=None)
        for chat in chats.filter(project__in=projects).alias(place=place).filter(place__lte=CHATS_PER_GROUP):
            found[chat.project].append(chat)
    for each in found.values():
        each.sort(key=lambda chat: (chat.last_active_at, chat.pk), reverse=True)
    return found


# --- The outline of a long chat: its questions in order, the turns with some words, the first turn of a day ---

# As many as fit on a screen, with marks of four pixels; for longer chats every n-th question.
MOST_ENTRIES = 200
MOST_FOUND = 100
BEGINNING = 120
# The length of the text before the match in a snippet.
BEFORE_MATCH = 40
MOST_WORDS = 8

_QUESTIONS = """
SELECT turn_number, said_at, left(user_message, %(length)s)
  FROM (SELECT turn_number, said_at, user_message,
               row_number() OVER (ORDER BY turn_number) - 1 AS place, count(*) OVER () AS total
          FROM intake_conversation_turns
         WHERE conversation_id = %(conversation)s AND user_id = %(user)s) AS turns
 WHERE place %% greatest(1, ceil(total / %(most)s::numeric)::bigint) = 0
 ORDER BY turn_number
"""


# One turn of an outline, for its template: `text` is the beginning of the message, or the text around the match.
def _outline_entry(number: int, said_at: datetime, text: str) -> dict[str, Any]:
    return {"turn_number": number, "said_at": said_at, "text": text}


def questions(conversation: Conversation) -> list[dict[str, Any]]:
    """The user's messages in order; if there are more than 200, a selection at even intervals."""
    parameters: dict[str, Any] = {
        "conversation": conversation.pk,
        "user": conversation.user_id,
        "length": BEGINNING,
        "most": MOST_ENTRIES,
    }
    with connection.cursor() as cursor:
        cursor.execute(_QUESTIONS, parameters)
        return [_outline_entry(number, said_at, " ".join(text.split())) for number, said_at, text in cursor.fetchall()]


def find(conversation: Conversation, words: str) -> list[dict[str, Any]]:
    """The latest 100 turns that contain each of the words, in any case, the latest first."""
    requested = pg_text(words).split()[:MOST_WORDS]
    turns = Turn.objects.filter(conversation=conversation, user=conversation.user_id)
    for word in requested:
        turns = turns.filter(Q(user_message__icontains=word) | Q(assistant_message__icontains=word))
    rows = turns.order_by("-turn_number").values_list("turn_number", "said_at", "user_message", "assistant_message")
    return [
        _outline_entry(number, said_at, _excerpt_around(requested, user_text, assistant_text))
        for number, said_at, user_text, assistant_text in rows[:MOST_FOUND]
    ]


def first_turn_of(conversation: Conversation, day: date, zone: tzinfo) -> int | None:
    """The number of the first turn on or after that day, or else the last turn's."""
    turns = Turn.objects.filter(conversation=conversation, user=conversation.user_id)
    since = datetime.combine(day, time.min, tzinfo=zone)
    turn = turns.filter(said_at__gte=since).in_order().first() or turns.order_by("-turn_number").first()
    return None if turn is None else turn.turn_number


def _excerpt_around(words: list[str], *texts: str) -> str:
    for text in texts:
        folded = text.lower()
        places = [place for word in words if (place := folded.find(word.lower())) >= 0]
        if places:
            start = max(0, min(places) - BEFORE_MATCH)
            piece = " ".join(text[start : start + BEGINNING].split())
            return f"…{piece}" if start else piece
    return " ".join(cut(texts[0], BEGINNING).split())
