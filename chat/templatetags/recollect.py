"""Template tags and filters: safe Markdown, tool calls in words, addresses, icons, and for whom a page was made."""

import re
from datetime import datetime
from functools import cache
from typing import Any

from django import template
from django.conf import settings
from django.http import HttpRequest
from django.template.defaulttags import CsrfTokenNode
from django.template.loader import get_template, render_to_string
from django.templatetags.static import static
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from chat.answers import tool_call_view
from chat.pages.chats import PART, sidebar_of
from core.isolation.acting import acting_as
from core.text import in_page_language, restored
from intake.accounts import devices
from intake.accounts.identity import PAGE_PERSON_FIELD, caller_of, is_registered, page_person_of
from intake.attachments.reading.pictures import PICTURES
from intake.chats import tree
from intake.chats.prompts import Prompt
from intake.chats.usage import Usage, thought_in_words
from intake.llm import windows
from intake.llm.language_models import LanguageModel
from intake.markdown import render
from intake.markdown.later import later
from intake.models import Attachment, Turn
from memory import documents
from memory.addresses import project_key
from memory.sources_of_answers import AnswerSource, in_words, places_cited

register = template.Library()
ALONE, BESIDE_CHATS = "intake/plain.html", "intake/page.html"
READABLE = re.compile(r"text/|application/(json|xml|x-yaml|toml|javascript)")


@register.filter
def markdown(text: str) -> SafeString:
    return later(lambda: render(text))


@register.simple_tag
def difference(before: str, after: str) -> SafeString:
    """The changed lines between two texts; both side by side if too much has changed to compare them line by line."""

    def draw() -> str:
        shown: dict[str, Any]
        try:
            shown = {"lines": [*documents.difference(before, after)]}
        except TimeoutError:
            shown = {"before": before, "after": after}
        return render_to_string("memory/_difference.html", shown)

    return later(draw)


# A page has a hundred of them, and looking up the file's hashed name takes longer than anything else.
@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    picture = '<svg class="icon" aria-hidden="true"><use href="{}#{}"></use></svg>'
    return format_html(picture, static("intake/icons.svg"), name)


@register.simple_tag
def moment(value: datetime) -> SafeString:
    """A time in words for readers without JavaScript; with it, static/intake/times.js shows the age."""
    local = timezone.localtime(value)
    return format_html(
        '<time datetime="{}">{}</time>', local.isoformat(), f"{date_format(local, 'DATETIME_FORMAT')} {local:%Z}"
    )


@register.simple_tag
def siblings(versions: dict[int, list[int]] | None, turn: Turn | None) -> dict[str, Any] | None:
    """The versions of a turn: its own place (from 1), and the numbers of its neighbours. None if it is the only one."""
    numbers = (versions or {}).get(turn.turn_number, []) if turn else []
    if turn is None or len(numbers) <= 1:
        return None
    place = numbers.index(turn.turn_number)
    return {
        "numbers": numbers,
        "place": place + 1,
        "before": numbers[place - 1] if place else None,
        "after": numbers[place + 1] if place + 1 < len(numbers) else None,
    }


@register.filter
def usage(turn: Turn | None) -> str:
    """The usage of an answer, in a line."""
    return Usage.of(turn.usage).in_words() if turn else ""


@register.filter
def window(turn: Turn) -> Usage:
    """How many earlier messages the model got with a turn, and how many not."""
    return Usage.of(turn.usage)


@register.filter
def note_on_window(model: LanguageModel | None) -> str:
    """The sentence about a model whose window is small; empty for any other."""
    return in_page_language(windows.note_on_window(model) or "") if model else ""


@register.filter
def unlocalize_number(value: float) -> str:
    """A number for HTML attributes, independent of the page's language."""
    return f"{value:g}"


@register.filter
def thought(turn: Turn | None) -> str:
    """The label of an answer's folded reasoning."""
    if turn is None or not turn.has_ended:
        return _("Thinking…")
    return thought_in_words(Usage.of(turn.usage).thought_seconds)


@register.filter
def answer(turn: Turn, cited: dict[int, list[AnswerSource]] | str) -> SafeString:
    """The answer of a turn, in which the numbers of its sources lead to them."""
    places = {} if isinstance(cited, str) else places_cited(cited.get(turn.pk, ()))
    return later(lambda: render(turn.assistant_message, places))


@register.filter
def sources_line(turn: Turn | None) -> str:
    return "" if turn is None else in_words(Prompt.of(turn.prompt).sources)


@register.filter
def files_of(files: dict[int, list[Attachment]] | str, turn: Turn | None) -> list[Attachment]:
    """The files of a turn, among those of all turns of a page (an empty text where a page knows of none)."""
    return files.get(turn.pk, []) if turn is not None and not isinstance(files, str) else []


@register.filter
def kept_from(kept: list[dict[str, Any]] | str, turn: Turn | None) -> str:
    """The id of the last record that was kept from a turn; empty without one."""
    found = [] if turn is None or isinstance(kept, str) else [each for each in kept if each["turn"] == turn.turn_number]
    return str(found[-1]["id"]) if found else ""


@register.filter
def is_picture(file: Attachment | None) -> bool:
    """Whether the file has a thumbnail; `PICTURES` in static/intake/files.js has the same types."""
    return file is not None and file.media_type in PICTURES and file.state == Attachment.State.READ


@register.filter
def is_text(file: Attachment | None) -> bool:
    """Whether the page can show the file's text as it stands; `READABLE` in static/intake/files.js has the same."""
    return file is not None and READABLE.match(file.media_type) is not None


@register.filter
def state_in_words(file: Attachment | None) -> str:
    """Whether the text of a file has been read, and all of it."""
    if file is None:
        return ""
    if file.state == Attachment.State.WAITING:
        return _("Being read…")
    return in_page_language(restored(file.error or {"message": ""}, "message"))


@register.filter
def detail(error: dict[str, Any]) -> str:
    """The sentence of a failed turn's error."""
    return in_page_language(restored(error, "detail"))


@register.filter
def step(call: dict[str, Any], turn: Turn) -> SafeString:
    return later(lambda: tool_call_view.draw(call, turn))


register.filter(project_key)
register.filter("in_page_language", in_page_language)
register.filter("device", devices.in_page_language)
register.simple_tag(tree.conversation_path, name="conversation_path")
register.simple_tag(tree.branch_path, name="branch_path")


@register.filter
def frame(request: HttpRequest | str, who: str = "") -> str:
    """The template that a page extends: beside the list of chats, or alone.

    Alone for a stranger, for a visitor where it is a page of an `account`, and for a script that takes a part of it.
    A page that is rendered without its request is the same for everybody, and so alone, too.
    """
    if isinstance(request, str) or not hasattr(request, "user") or PART in request.headers:
        return ALONE
    is_shown = is_registered(request) if who == "account" else request.user.is_authenticated
    return BESIDE_CHATS if is_shown else ALONE


@register.simple_tag(takes_context=True)
def side_bar(context: template.RequestContext) -> SafeString:
    """The list of chats, with the ways to the other pages. Scripts that take a part of a page get none."""
    request: HttpRequest = context["request"]
    if PART in request.headers:
        return SafeString("")
    project = str(context.get("of_project") or "")
    with acting_as(caller_of(request)):
        shown = sidebar_of(request, project=project)
    sidebar: Any = get_template("intake/_sidebar.html")
    with context.push(**shown):
        return SafeString(sidebar.template.render(context))


# The next three say in each page for whom it was made: on the root element for scripts, and beside the CSRF token for
# forms. They are built in (`TEMPLATES`), so that no form can forget it, and none of the admin or of django-allauth.


@register.simple_tag(takes_context=True)
def page_person(context: template.Context) -> str:
    """Empty for a page that is the same for everybody, which is rendered without its request."""
    request: HttpRequest | None = context.get("request")
    return page_person_of(request) if request is not None and hasattr(request, "user") else ""


@register.simple_tag
def csrf_cookie() -> str:
    """The name of the cookie from which scripts read the CSRF token."""
    return str(settings.CSRF_COOKIE_NAME)


@register.simple_tag(takes_context=True)
def csrf_token(context: template.Context) -> SafeString:
    token: Any = CsrfTokenNode().render(context)
    made_for = page_person(context)
    if not made_for:
        return format_html("{}", token)
    return format_html('{}<input type="hidden" name="{}" value="{}">', token, PAGE_PERSON_FIELD, made_for)


@register.simple_tag
def mail_is_off() -> bool:
    return bool(settings.EMAIL_IS_OFF)
