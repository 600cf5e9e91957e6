"""What a person's home page shows beside the field: a year ago today, what is open, what to remember, what came in.

And the page of a year: what was decided, kept and opened. One statement each, along indexes, without a model.
"""

from collections import defaultdict
from datetime import date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from chat.pages.common import page_for_registered, project_of, show
from core.errors import NotFound
from core.text import gettext_noop as _
from core.text import shortened
from intake.accounts.identity import person_of
from intake.chats.tree import conversation_path
from intake.models import User
from memory.addresses import document_path, note_path, record_path
from memory.documents import YEARS
from memory.models import MemoryDocument
from memory.models.documents import ABOUT_ME, CLOSED_SOURCES, PAST_RECORDS
from memory.records import TODO_TYPES

LINES = 3
# A to-do in Markdown.
OPEN_LINE = r"^\s*[-*+] \[ \] +(\S.*)$"

PARTS = {
    "year": _("A year ago today"),
    "open": _("Still open"),
    "remember": _("To remember?"),
    "new": _("New since yesterday, from agents and imports"),
}

HIDDEN = "hidden"


def _home_statement(
    left_out: str, *, project: str = "", of_turns: str = "", of_records: str = "", of_proposals: str = ""
) -> str:
    """`project` and the others: the conditions of a project's rows; `of_proposals` also those of no closed one."""
    return f"""
WITH preferences AS (
    SELECT hidden_at_home FROM intake_chat_preferences WHERE user_id = %(user_id)s
), left_out AS MATERIALIZED ({left_out})
(SELECT 'hidden' AS part, '' AS kind, NULL::uuid AS id, 0 AS number, NULL::date AS day, hidden_at_home AS text
   FROM preferences)
UNION ALL
(SELECT 'year', 'chat', conversation_id, turn_number, NULL, user_message
   FROM (SELECT DISTINCT ON (conversation_id) conversation_id, turn_number, user_message, said_at
           FROM intake_conversation_turns
          WHERE user_id = %(user_id)s AND said_at >= %(year_from)s AND said_at < %(year_until)s AND user_message <> ''
            AND NOT is_temporary AND conversation_id NOT IN (TABLE left_out) {of_turns}
          ORDER BY conversation_id, said_at) AS turn
  ORDER BY said_at
  LIMIT %(lines)s)
UNION ALL
(SELECT 'open', 'record', id, 0, NULL, content
   FROM memory_records
  WHERE user_id = %(user_id)s AND lower(type) = ANY(%(open_types)s) AND done_at IS NULL AND id NOT IN (TABLE left_out)
    {of_records}
  ORDER BY created_at DESC, id DESC
  LIMIT %(lines)s)
UNION ALL
(SELECT 'open', kind || ' ' || project, id, 0, date, (regexp_matches(content, %(open_line)s, 'gn'))[1]
   FROM (SELECT kind, project, id, date, content
           FROM memory_documents
          WHERE user_id = %(user_id)s AND id NOT IN (TABLE left_out) {project}
          ORDER BY updated_at DESC
          LIMIT %(notes)s) AS document
  WHERE content LIKE '%%[ ]%%'
  LIMIT %(lines)s)
UNION ALL
(SELECT 'remember', 'proposal', id, 0, NULL, content
   FROM memory_proposals
  WHERE user_id = %(user_id)s AND state = 'waiting'
    AND (source_conversation IS NULL OR source_conversation NOT IN (TABLE left_out)) {of_proposals}
  ORDER BY created_at DESC, id DESC
  LIMIT %(lines)s)
UNION ALL
(SELECT 'new', 'record', id, 0, NULL, content
   FROM memory_records
  WHERE user_id = %(user_id)s AND created_at >= %(yesterday)s AND source_conversation IS NULL AND done_at IS NULL
    AND id NOT IN (TABLE left_out) {of_records}
  ORDER BY created_at DESC, id DESC
  LIMIT %(lines)s)
UNION ALL
(SELECT 'new', 'chat', id, 0, NULL, title
   FROM intake_conversations
  WHERE user_id = %(user_id)s AND expires_at IS NULL AND source <> 'chat' AND last_active_at >= %(yesterday)s
    AND id NOT IN (TABLE left_out) {project}
  ORDER BY last_active_at DESC, id DESC
  LIMIT %(lines)s)
"""  # noqa: S608 - only constants of ours


_HOME = _home_statement(
    f"{PAST_RECORDS}\n UNION ALL\n{CLOSED_SOURCES}",
    of_proposals="""AND project_id NOT IN (
        SELECT name FROM intake_projects WHERE user_id = %(user_id)s AND is_closed)""",
)
# In a project its texts are shown, also if it is closed.
_HOME_OF_PROJECT = _home_statement(
    PAST_RECORDS,
    project="AND project = %(project)s",
    of_turns="""AND conversation_id IN (
                SELECT id FROM intake_conversations WHERE user_id = %(user_id)s AND project = %(project)s)""",
    of_records="AND project_id = %(project)s",
    of_proposals="AND project_id = %(project)s",
)


def home(*, user: User, now: datetime, project: str = "") -> list[tuple[str, str, list[dict[str, Any]]]]:
    """The parts that have something: name, title, and lines with `path`, `text` and, of a to-do that can be ticked, the
    `id` of its record; at most `LINES` of each.

    `project`: only of this one. Without it, of all but closed ones.

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
        # The notes in which open lines are looked for, by the time of their last change.
        "notes": 30,
        "project": project,
    }
    with connection.cursor() as cursor:
        cursor.execute(_HOME_OF_PROJECT if project else _HOME, asked)
        rows = cursor.fetchall()
    hidden: list[str] = next((text.split() for part, *_, text in rows if part == HIDDEN), [])
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for part, kind, row_id, number, day, text in rows:
        if part in PARTS and part not in hidden and len(lines[part]) < LINES:
            line = {"path": _path(kind, row_id, number, day), "text": shortened(" ".join(text.split()), 90)}
            # A new to-do is among those that are open.
            if part != "new" or line["path"] not in [each["path"] for each in lines["open"]]:
                lines[part].append(line | ({"id": row_id} if (part, kind) == ("open", "record") else {}))
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
        case "proposal":
            return reverse("memory:proposals")
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


DECIDED, KEPT, OPENED = "decided", "kept", "opened"
KINDS = (DECIDED, KEPT, OPENED)
# The lines that a month has of each kind; its numbers count all.

_YEAR = f"""
WITH past AS MATERIALIZED ({PAST_RECORDS}),
closed AS MATERIALIZED (SELECT name FROM intake_projects WHERE user_id = %(user_id)s AND is_closed),
mine AS MATERIALIZED (
    SELECT id, content, created_at, done_at, project_id AS project,
           extract(month FROM created_at AT TIME ZONE %(zone)s)::int AS month,
           CASE WHEN lower(type) = ANY(%(open_types)s) THEN 'opened'
                WHEN type ILIKE '%%decision%%' THEN 'decided'
                ELSE 'kept' END AS kind
      FROM memory_records
     WHERE user_id = %(user_id)s AND created_at >= %(from)s AND created_at < %(until)s
       AND CASE WHEN %(project)s = '' THEN project_id NOT IN (TABLE closed) ELSE project_id = %(project)s END
)
(SELECT 'year', 0, '', '', (created_at AT TIME ZONE %(zone)s)::date, NULL::uuid, '', FALSE, FALSE
   FROM memory_records
  WHERE user_id = %(user_id)s
  ORDER BY memory_records.created_at, memory_records.id
  LIMIT 1)
UNION ALL
(SELECT kind, month, project, count(*)::text, NULL, NULL, '', FALSE, FALSE FROM mine GROUP BY kind, month, project)
UNION ALL
(SELECT kind, month, project, '', NULL, id, left(content, 400), done_at IS NOT NULL, id IN (TABLE past)
   FROM (SELECT *, row_number() OVER (PARTITION BY month, kind ORDER BY created_at DESC, id DESC) AS place
           FROM mine) AS ranked
  WHERE place <= %(lines)s
  ORDER BY created_at DESC, id DESC)
"""  # noqa: S608 - only constants of ours


@page_for_registered
def year_page(request: HttpRequest) -> HttpResponse:
    """The year of the address, or this one; of one project, or of all that are open."""
    user, project = person_of(request), project_of(request)
    this_year = user.local_time(timezone.now()).year
    shown = _year_named(request.GET.get("year", ""), this_year)
    months, totals, first = year(user=user, number=shown, project=project, now=timezone.now())
    context: dict[str, Any] = {
        "shown": shown,
        "months": months,
        "totals": totals,
        "of_project": project,
        "before": shown - 1 if first is not None and first < shown else None,
        "after": shown + 1 if shown < this_year else None,
    }
    return show(request, "memory/year.html", tab="year", **context)


def year(
    *, user: User, number: int, project: str, now: datetime
) -> tuple[list[dict[str, Any]], list[tuple[str, list[int]]], int | None]:
    """The months that have something, the latest first; the numbers of each project; and the year of the first record.

    A month has its `first` day, and as `kinds` each kind with its number, its latest lines, and the number of others. A
    line has its path, text and project, whether it is done, and whether it no longer holds.
    """
    asked: dict[str, Any] = {
        "user_id": user.pk,
        "zone": user.zone.key,
        "from": _beginning(user, date(number, 1, 1)),
        "until": _beginning(user, date(number + 1, 1, 1)),
        "today": user.local_time(now).date(),
        "open_types": list(TODO_TYPES),
        "project": project,
        "lines": 6,
    }
    with connection.cursor() as cursor:
        cursor.execute(_YEAR, asked)
        rows = cursor.fetchall()
    first: int | None = None
    lines: dict[tuple[int, str], list[tuple[str, str, str, bool, bool]]] = defaultdict(list)
    counts: dict[tuple[int, str], int] = defaultdict(int)
    totals: dict[str, list[int]] = defaultdict(lambda: [0] * len(KINDS))
    for kind, month, of_project, count, day, record_id, text, is_done, is_past in rows:
        if day is not None:
            first = day.year
        elif record_id is None:
            counts[month, kind] += int(count)
            totals[of_project][KINDS.index(kind)] += int(count)
        else:
            line = shortened(" ".join(text.split()), 160)
            lines[month, kind].append((record_path(record_id), line, of_project, is_done, is_past))
    months = [
        {
            "first": date(number, month, 1),
            "kinds": [
                (kind, count, lines[month, kind], count - len(lines[month, kind]))
                for kind in KINDS
                if (count := counts[month, kind])
            ],
        }
        for month in sorted({month for month, _ in counts}, reverse=True)
    ]
    # What belongs to no project comes last.
    return months, sorted(totals.items(), key=lambda item: (not item[0], item[0].casefold())), first


def _year_named(text: str, this_year: int) -> int:
    """Raises `NotFound` for what is no year, and for one in the future."""
    if not text:
        return this_year
    if not (text.isascii() and text.isdecimal() and len(text) == len("2000")) or int(text) not in YEARS:
        raise NotFound
    if int(text) > this_year:
        raise NotFound
    return int(text)
