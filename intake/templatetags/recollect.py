"""What the pages' templates need: Markdown made safe, a turn's tool calls in words, addresses and pictures."""

from functools import cache

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

from intake import links
from intake.markdown import render
from intake.steps import steps_of

register = template.Library()


@register.filter
def markdown(text: str) -> SafeString:
    return render(text)


# A page has a hundred of them, and looking up the file's present name takes longer than all else about one.
@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>', _icons(), name)


def _icons() -> str:
    return static("intake/icons.svg")


register.filter("steps", steps_of)
register.simple_tag(links.conversation_path, name="conversation_path")
