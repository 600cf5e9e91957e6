"""Describes finished tool calls on a page, in the reader's language; static/intake/turn.js describes running ones."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from typing import Any, Self

from django.utils.html import strip_tags
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from core.text import gettext_noop as _
from core.text import in_page_language, restored
from intake.chats.tree import undo_path
from intake.markdown import render_summary
from intake.models import Turn

# What the chat's tools did, where nothing says it better; `DONE` in static/intake/turn.js has the same.
DONE = {
    "search": _("Searched your memory"),
    "fetch": _("Read a result"),
    "get_conversation": _("Read a chat"),
    "get_context": _("Looked at your memory"),
    "list_recent_conversations": _("Looked at your last chats"),
    "read_attachment": _("Read a file"),
    "save_memory": _("Remembered"),
    "append_daily_log": _("Wrote in your daily log"),
}
# Those that store something: their line has a pen, and no lens.
WRITING = ("save_memory", "append_daily_log")
# An id has more characters.
LONGEST_DETAIL = 32


@dataclass(frozen=True, slots=True)
class Step:
    """`brief` is the summary without the places, or all of it for a failure; empty where the stored text is shown.
    `stored` is None for a call that stored nothing; `undo_path` is its undo address, if it can be undone.
    """

    what: str
    brief: str
    called: str
    summary: SafeString | None
    stored: str | None
    undo_path: str | None
    is_error: bool
    is_undone: bool
    is_writing: bool

    @classmethod
    def of(cls, call: dict[str, Any], turn: Turn) -> Self:
        is_kept, is_error = bool(call.get("place")), bool(call.get("is_error"))
        summary = render_summary(in_page_language(restored(call, "summary"))) if call.get("summary") else None
        return cls(
            what=in_words(call),
            brief="" if call.get("stored") and not is_error else in_brief(summary or "", is_error=is_error),
            called=as_called(call),
            summary=summary,
            stored=call.get("stored"),
            undo_path=(
                undo_path(turn.conversation_id, turn_number=turn.turn_number, call_id=call["id"]) if is_kept else None
            ),
            is_error=is_error,
            is_undone=bool(call.get("undone_at")),
            is_writing=call.get("name") in WRITING,
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


def in_brief(summary: str, *, is_error: bool) -> str:
    """The summary as text, up to its colon: how much was found, and not where. `inBrief` in turn.js has the same."""
    text = unescape(strip_tags(summary)).strip()
    return text if is_error else text.partition(": ")[0]


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
