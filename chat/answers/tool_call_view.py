"""Draws a tool call of an answer as a step of its turn, for the stream while it runs and for each later page."""

import json
from html import unescape
from typing import Any

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import strip_tags
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from core.text import gettext_noop, in_page_language, restored
from intake.attachments.services import OPEN_PAGE
from intake.chats.tree import undo_path
from intake.markdown import render_summary
from intake.models import Turn

# What the chat's tools do, and what they have done.
WORDS = {
    "search": (gettext_noop("Searching your memory…"), gettext_noop("Searched your memory")),
    "fetch": (gettext_noop("Reading a result…"), gettext_noop("Read a result")),
    "get_conversation": (gettext_noop("Reading a chat…"), gettext_noop("Read a chat")),
    "get_context": (gettext_noop("Looking at your memory…"), gettext_noop("Looked at your memory")),
    "list_recent_conversations": (
        gettext_noop("Looking at your last chats…"),
        gettext_noop("Looked at your last chats"),
    ),
    "read_attachment": (gettext_noop("Reading a file…"), gettext_noop("Read a file")),
    "save_memory": (gettext_noop("Remembering…"), gettext_noop("Remembered")),
    "append_daily_log": (gettext_noop("Writing in your daily log…"), gettext_noop("Wrote in your daily log")),
}
WEB = gettext_noop("Searching the web for “%(query)s”…"), gettext_noop("Searched the web for “%(query)s”")
PAGE = gettext_noop("Reading %(address)s…"), gettext_noop("Read %(address)s")
CHATS = gettext_noop("Searching your chats for “%(query)s”…"), gettext_noop("Searched your chats for “%(query)s”")
NOTES = gettext_noop("Searching your notes for “%(query)s”…"), gettext_noop("Searched your notes for “%(query)s”")
HISTORY = gettext_noop("Searching your history for “%(query)s”…"), gettext_noop("Searched your history for “%(query)s”")

ELSEWHERE = gettext_noop("Calling %(tool)s of %(server)s…"), gettext_noop("Called %(tool)s of %(server)s")
ASKED = gettext_noop("May %(tool)s of %(server)s be called?")


def draw(call: dict[str, Any], turn: Turn) -> SafeString:
    """The step of a call, as the turn keeps it, in the active language.

    Its brief is the summary without the places, or all of it for a failure; empty where the stored text is shown.
    """
    is_error, stored, summary = bool(call.get("is_error")), call.get("stored"), SafeString("")
    if call.get("summary"):
        summary = render_summary(in_page_language(restored(call, "summary")))
    text = unescape(strip_tags(summary)).strip()
    undo = {"turn_number": turn.turn_number, "call_id": call["id"]} if call.get("place") else None
    approval = call.get("approval") or {}
    waits = "decision" not in approval and bool(approval) and (call.get("waits") or turn.status == Turn.Status.WAITING)
    if approval and "summary" not in call and turn.has_ended:
        is_error, text = True, _("It was not called, because nobody answered.")
    step = {
        "id": call.get("id"),
        # An import brings calls without what they returned. They are over, unlike those that an end of ours cut off.
        "what": _in_words(call, is_done="summary" in call or turn.status == Turn.Status.COMPLETE),
        "brief": "" if stored and not is_error else text if is_error else text.partition(": ")[0],
        "called": _as_called(call),
        "summary": summary,
        "stored": stored,
        "found": call.get("found"),
        "undo_path": undo_path(turn.conversation_id, **undo) if undo else None,
        "is_running": "summary" not in call and not turn.has_ended and not waits,
        "is_error": is_error,
        "is_undone": bool(call.get("undone_at")),
        # Each query, each address and each call of a tool from elsewhere stays in view.
        "is_of_web": bool(call.get("origin")) or call.get("name") in ("web_search", OPEN_PAGE),
        # Their line has a pen, and no lens.
        "is_writing": waits or call.get("name") in ("save_memory", "append_daily_log"),
        "asks": _asked(call, turn) if waits else None,
    }
    return render_to_string("intake/_step.html", {"step": step, "turn": turn})


def _asked(call: dict[str, Any], turn: Turn) -> dict[str, Any]:
    arguments = json.dumps(call.get("input"), ensure_ascii=False, indent=2)
    path = reverse("decide_call", args=[turn.pk, call["id"]])
    why = restored(call["approval"], "why")
    return {
        **call["approval"],
        "why": why,
        "arguments": arguments,
        "rows": min(12, arguments.count("\n") + 1),
        "path": path,
    }


def _in_words(call: dict[str, Any], *, is_done: bool) -> str:
    name, arguments = str(call.get("name", "")), call.get("input")
    if origin := call.get("origin"):
        approval = call.get("approval") or {}
        is_open = approval and "decision" not in approval and not is_done
        tool = {"tool": call["tool"], "server": origin}
        return _(ASKED if is_open else ELSEWHERE[is_done]) % tool
    if name.startswith("search") and isinstance(arguments, dict) and (query := arguments.get("query")):
        if name == "search_chat_history" or arguments.get("scope") == "sessions":
            words = CHATS
        else:
            words = NOTES if name == "search_memory" or arguments.get("scope") == "memory" else HISTORY
        return _(words[is_done]) % {"query": query}
    if name == "web_search" and isinstance(arguments, dict):
        return _(WEB[is_done]) % {"query": arguments.get("query", "")}
    if name == OPEN_PAGE and isinstance(arguments, dict):
        return _(PAGE[is_done]) % {"address": arguments.get("url", "")}
    if name in WORDS:
        return _(WORDS[name][is_done])
    return name.replace("_", " ").capitalize() + ("" if is_done else "…")


def _as_called(call: dict[str, Any]) -> str:
    """The tool's name and its input, without the query and the stored text, which are shown anyway.

    Lists and long texts are shown elsewhere or not at all, and ids mean nothing to a reader. The input is sorted by
    name, because the database keeps no order.
    """
    arguments, details = call.get("input"), [str(call.get("name", ""))]
    for name, value in sorted(arguments.items()) if isinstance(arguments, dict) else ():
        # An id has more characters.
        is_short = 0 < len(value) <= 32 if isinstance(value, str) else isinstance(value, bool | int | float)
        if name != "query" and value != call.get("stored") and is_short:
            details.append(f"{name}: {value if isinstance(value, str) else json.dumps(value)}")
    return " · ".join(details)
