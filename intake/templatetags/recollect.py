"""What the thread's templates need: Markdown made safe, and a tool call in words."""

from typing import Any

from django import template
from django.utils.safestring import SafeString

from intake import links
from intake.markdown import render, render_summary

register = template.Library()


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


register.simple_tag(links.conversation_path, name="conversation_path")
