"""What a person's home page shows beside the field: where to go on, a year ago today, what is open, what came in.

One statement, along indexes, without a model. Each part has a few lines at most.
"""

from collections import defaultdict
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from core.text import gettext_noop as _
from core.text import shortened
from intake.chats.tree import conversation_path
from intake.models import User
from memory.models import MemoryDocument
from memory.models.documents import ABOUT_ME, CLOSED_SOURCES, PAST_RECORDS
from memory.pages.common import document_path, note_path, record_path
from memory.records import TODO_TYPES

LINES = 3
LINE_LENGTH = 90
# A to-do in Markdown.
OPEN_LINE = r"^\s*[-*+] \[ \] +(\S.*)$"
# The notes in which open lines are looked for, by the time of their last change.
NOTES_READ = 30

PARTS = {
    "last": _("Recent chats"),
    "year": _("A year ago today"),
    "open": _("Still open"),
    "new": _("New since yesterday, from agents and imports"),
}

HIDDEN = "hidden"

_HOME = f"""
WITH preferences AS (
    SELECT hidden_at_home FROM intake_chat_preferences WHERE user_id = %(user_id)s
), left_out AS MATERIALIZED ({PAST_RECORDS}
 UNION ALL
{CLOSED_SOURCES})
(SELECT 'hidden' AS part, '' AS kind, NULL::uuid AS id, 0 AS number, NULL::date AS day, hidden_at_home AS text
   FROM preferences)
UNION ALL
(SELECT 'last', 'chat', id, 0, NULL, title
   FROM intake_conversations
  WHERE user_id = %(user_id)s AND expires_at IS NULL AND archived_at IS NULL AND id NOT IN (TABLE left_out)
  ORDER BY last_active_at DESC, id DESC
  LIMIT %(lines)s)
UNION ALL
(SELECT 'year', 'chat', conversation_id, turn_number, NULL, user_message
   FROM (SELECT DISTINCT ON (conversation_id) conversation_id, turn_number, user_message, said_at
           FROM intake_conversation_turns
          WHERE user_id = %(user_id)s AND said_at >= %(year_from)s AND said_at < %(year_until)s AND user_message <> ''
            AND NOT is_temporary AND conversation_id NOT IN (TABLE left_out)
          ORDER BY conversation_id, said_at) AS turn
  ORDER BY said_at
  LIMIT %(lines)s)
UNION ALL
(SELECT 'open', 'record', id, 0, NULL, content
   FROM memory_records
  WHERE user_id = %(user_id)s AND lower(type) = ANY(%(open_types)s) AND done_at IS NULL AND id NOT IN (TABLE left_out)
  ORDER BY created_at DESC, id DESC
  LIMIT %(lines)s)
UNION ALL
(SELECT 'open', kind || ' ' || project, id, 0, date, (regexp_matches(content, %(open_line)s, 'gn'))[1]
   FROM (SELECT kind, project, id, date, content
           FROM memory_documents
          WHERE user_id = %(user_id)s AND id NOT IN (TABLE left_out)
          ORDER BY updated_at DESC
          LIMIT %(notes)s) AS document
  WHERE content LIKE '%%[ ]%%'
  LIMIT %(lines)s)
UNION ALL
(SELECT 'new', 'record', id, 0, NULL, content
   FROM memory_records
  WHERE user_id = %(user_id)s AND created_at >= %(yesterday)s AND source_conversation IS NULL
    AND id NOT IN (TABLE left_out)
  ORDER BY created_at DESC, id DESC
  LIMIT %(lines)s)
UNION ALL
(SELECT 'new', 'chat', id, 0, NULL, title
   FROM intake_conversations
  WHERE user_id = %(user_id)s AND expires_at IS NULL AND source <> 'chat' AND last_active_at >= %(yesterday)s
    AND id NOT IN (TABLE left_out)
  ORDER BY last_active_at DESC, id DESC
  LIMIT %(lines)s)
"""  # noqa: S608 - only constants of ours


def home(*, user: User, now: datetime) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The parts that have something: name, title, and lines as (path, text); at most `LINES` of each.

    If some are hidden, the last one is `HIDDEN`, without lines.
    """
    today = user.local_time(now).date()
    asked: dict[str, Any] = {
        "user_id": user.pk,
        "lines": LINES,
        "year_from": _beginning(user, _year_before(today)),
        "year_until": _beginning(user, _year_before(today) + timedelta(days=1)),
        "yesterday": _beginning(user, today - timedelta(days=1)),
        "open_types": list(TODO_TYPES),
        "today": today,
        "open_line": OPEN_LINE,
        "notes": NOTES_READ,
    }
    with connection.cursor() as cursor:
        cursor.execute(_HOME, asked)
        rows = cursor.fetchall()
    hidden: list[str] = next((text.split() for part, *_, text in rows if part == HIDDEN), [])
    lines: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for part, kind, row_id, number, day, text in rows:
        if part in PARTS and part not in hidden and len(lines[part]) < LINES:
            lines[part].append((_path(kind, row_id, number, day), shortened(" ".join(text.split()), LINE_LENGTH)))
    parts = [(name, title, lines[name]) for name, title in PARTS.items() if lines[name]]
    return [*parts, (HIDDEN, "", [])] if hidden else parts


def _path(kind: str, row_id: UUID, number: int, day: date | None) -> str:
    # Of a document, its project stands after a blank.
    kind, _, project = kind.partition(" ")
    match kind:
        case "chat":
            return conversation_path(row_id, turn_number=number or None)
        case "record":
            return record_path(row_id)
        case MemoryDocument.Kind.NOTE:
            return note_path(row_id)
        case MemoryDocument.Kind.ABOUT:
            return document_path(ABOUT_ME)
    return document_path(day, project=project)


def _year_before(today: date) -> date:
    """Of 29 February, the day before."""
    is_leap_day = (today.month, today.day) == (2, 29)
    return today.replace(year=today.year - 1, day=28 if is_leap_day else today.day)


def _beginning(user: User, day: date) -> datetime:
    return datetime.combine(day, time.min, tzinfo=user.zone)
