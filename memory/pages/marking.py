"""From a text and the places of its matches to HTML: every character is escaped, the matches stand in `<mark>`."""

from collections.abc import Iterator

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from memory.search.excerpts import Excerpt


def marked(excerpt: Excerpt) -> SafeString:
    return mark_safe("".join(_pieces(excerpt)))  # noqa: S308 - each piece is escaped


def _pieces(excerpt: Excerpt) -> Iterator[str]:
    end = 0
    for start, stop in excerpt.highlights:
        yield escape(excerpt.text[end:start])
        yield f"<mark>{escape(excerpt.text[start:stop])}</mark>"
        end = stop
    yield escape(excerpt.text[end:])
