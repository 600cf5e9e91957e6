"""What the pages' templates need: Markdown made safe, a turn's tool calls in words, addresses and pictures."""

from datetime import datetime
from functools import cache

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.dateformat import format as format_date
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
    picture = '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>'
    return format_html(picture, static("intake/icons.svg"), name)


@register.simple_tag
def moment(value: datetime) -> SafeString:
    """A time in words for readers without JavaScript; with it, static/intake/times.js tells how long ago it was."""
    local = timezone.localtime(value)
    return format_html('<time datetime="{}">{}</time>', local.isoformat(), format_date(local, "j M Y, H:i e"))


register.filter("steps", steps_of)
register.simple_tag(links.conversation_path, name="conversation_path")
