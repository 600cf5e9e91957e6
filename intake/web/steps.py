"""Describes finished tool calls on a page, in the reader's language; static/intake/turn.js describes running ones."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from django.utils.safestring import SafeString
from django.utils.translation import gettext

from core.text import gettext_noop as _
from core.text import in_page_language, restored
from intake.chats.tree import undo_path
from intake.markdown import render_summary
from intake.models import Turn

# What the chat's tools did, where nothing says it better; `DONE` in static/intake/turn.js has the same.
DONE = {
    "search": _("Search"),
    "fetch": _("Fetch"),
    "get_conversation": _("Get conversation"),
    "list_recent_conversations": _("List recent conversations"),
    "read_attachment": _("Read attachment"),
    "save_memory": _("Save memory"),
    "append_daily_log": _("Append daily log"),
}
# An id has more characters.
LONGEST_DETAIL = 32


@dataclass(frozen=True, slots=True)
class Step:
    """`stored` is None for a call that stored nothing; `undo_path` is its undo address, if it can be undone."""

    what: str
    called: str
    summary: SafeString | None
    stored: str | None
    undo_path: str | None
    is_error: bool
    is_undone: bool

    @classmethod
    def of(cls, call: dict[str, Any], turn: Turn) -> Self:
        is_kept = bool(call.get("place"))
        return cls(
            what=in_words(call),
            called=as_called(call),
            summary=render_summary(in_page_language(restored(call, "summary"))) if call.get("summary") else None,
            stored=call.get("stored"),
            undo_path=(
                undo_path(turn.conversation_id, turn_number=turn.turn_number, call_id=call["id"]) if is_kept else None
            ),
            is_error=bool(call.get("is_error")),
            is_undone=bool(call.get("undone_at")),
        )


def tool_call_views(turn: Turn) -> list[Step]:
    return [Step.of(call, turn) for call in turn.tool_calls]


def in_words(call: dict[str, Any]) -> str:
    """The finished tool call in words; `doing` in static/intake/turn.js has the same while it runs."""
    name = str(call.get("name", ""))
    arguments = call.get("input")
    query = arguments.get("query") if isinstance(arguments, dict) else None
    if name.startswith("search") and query:
        return gettext("Searched your history for “%(query)s”") % {"query": query}
    return gettext(DONE[name]) if name in DONE else name.replace("_", " ").capitalize()


def as_called(call: dict[str, Any]) -> str:
    """The tool's name and its input, without the query and the stored text, which are shown anyway.

    Sorted by name, because the database keeps no order. `called` in static/intake/turn.js has the same.
    """
    return " · ".join([str(call.get("name", "")), *_details(call)])


def _details(call: dict[str, Any]) -> Iterator[str]:
    arguments = call.get("input")
    for name, value in sorted(arguments.items()) if isinstance(arguments, dict) else ():
        if name != "query" and value != call.get("stored") and _is_short(value):
            yield f"{name}: {value if isinstance(value, str) else json.dumps(value)}"


def _is_short(value: Any) -> bool:
    """Lists and long texts are shown elsewhere or not at all, and ids mean nothing to a reader."""
    if isinstance(value, str):
        return 0 < len(value) <= LONGEST_DETAIL
    return isinstance(value, bool | int | float)
