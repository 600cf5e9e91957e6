"""What the thread's templates need: Markdown made safe, and a tool call in words."""

import json
from typing import Any

from django import template
from django.utils.safestring import SafeString

from intake import links
from intake.markdown import render, render_summary

register = template.Library()

# An id has more characters.
LONGEST_DETAIL = 32


@register.filter
def markdown(text: str) -> SafeString:
    return render(text)


@register.filter
def summary(text: str) -> SafeString:
    return render_summary(text)


@register.filter
def in_words(call: dict[str, Any]) -> str:
    """What a finished tool call did; `doing` in static/intake/turn.js says the same while it runs."""
    name = str(call.get("name", ""))
    arguments = call.get("input")
    query = arguments.get("query") if isinstance(arguments, dict) else None
    if name.startswith("search") and query:
        return f"Searched your history for “{query}”"
    return name.replace("_", " ").capitalize()


@register.filter
def as_called(call: dict[str, Any]) -> str:
    """The tool's name and what it was asked besides what is shown anyway, the query and the text that was stored.

    In the order of the alphabet, for the database keeps none. `called` in static/intake/turn.js says the same.
    """
    arguments = call.get("input")
    shown = arguments.items() if isinstance(arguments, dict) else []
    details = [
        f"{name}: {_as_text(value)}"
        for name, value in sorted(shown)
        if name != "query" and value != call.get("stored") and _is_short(value)
    ]
    return " · ".join([str(call.get("name", "")), *details])


def _is_short(value: Any) -> bool:
    """Lists and long texts are shown elsewhere or not at all, and ids say nothing to anybody."""
    if isinstance(value, str):
        return 0 < len(value) <= LONGEST_DETAIL
    return isinstance(value, bool | int | float)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


register.simple_tag(links.conversation_path, name="conversation_path")
register.simple_tag(links.undo_path, name="undo_path")
