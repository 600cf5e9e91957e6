"""The groups of the side bar: a user's projects with their latest chats."""

import hashlib
from collections import defaultdict
from collections.abc import Collection
from typing import Any

from django.db import connection
from django.db.models import F, Window
from django.db.models.functions import RowNumber

from intake.chats.lists import ConversationList
from intake.models import Conversation, User

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
