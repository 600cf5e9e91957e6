"""The page `/search/`: `search_history` for people. Its address contains the whole query, so it can be bookmarked."""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from html import unescape
from http import HTTPStatus
from itertools import compress
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import escape, strip_tags
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, gettext_noop

from chat.pages.chats import PART
from chat.pages.common import (
    SearchForm,
    count_search,
    file_path,
    page_that_searches,
    place_in_words,
)
from chat.pages.narrowing import chips, count_in_words, range_in_words, ranges, tabs, within_choices
from core.errors import RecollectError, SearchFailed, Unavailable
from core.isolation.acting import acting_as
from core.responses import retry_after
from core.text import ELLIPSIS, LONGEST_PROJECT
from core.validation import checked
from intake.accounts.identity import caller_of, person_of
from intake.chats.services import without_nul
from memory.addresses import page_path, path_to
from memory.chunking import ASSISTANT_LABEL, USER_LABEL
from memory.models import Corpus, MemoryDocument
from memory.search.excerpts import Excerpt, Piece, within_lines
from memory.search.history import Counts, History, HistoryMatch, HistoryRequest, search_history
from memory.search.sources import HistoryScope, Kind, Reference

logger = logging.getLogger(__name__)

MORE_RESULTS = 50
BY_DAY = "day"
# The parameter that turns off reading dates in the query.
ANY_TIME = "anytime"
# The parameter with which the page requests reranking, after it has shown the first order.
LOOK_AGAIN = "again"

# Of each kind its name and its icon.
KINDS = {
    Kind.MESSAGE: (gettext_noop("Message"), "chat"),
    Kind.SESSION: (gettext_noop("Chat"), "chat"),
    Kind.MEMORY: (gettext_noop("Note"), "note"),
    Kind.DAILY_LOG: (gettext_noop("Daily log"), "day"),
    Kind.ATTACHMENT: (gettext_noop("File"), "file"),
}
WHO = {USER_LABEL: gettext_noop("You"), ASSISTANT_LABEL: "Recollect"}
# The lines around a block of code, the row under a table's head, the edges and empty first cells of its rows; strong,
# struck out, code; a link; emphasis; the mark of a heading, a quotation or a list at a line's beginning; and an empty
# line, for which there is no room.
_MARKUP = re.compile(
    r"^[ \t]*+(?:`{3}[^`\n]*|~{3}[^\n]*)$\n?|^[ \t]*+\|[-:| \t]*+$\n?|^[ \t]*+(?:\|[ \t]*+)++|\|[ \t]*+(?=\u2026?$)"
    r"|\*\*|~~|`+|!?\[(?P<words>[^\[\]\n]*)\]\([^)\s]{0,300}\)"
    r"|(?<!\w)(?P<mark>[*_])(?P<stressed>[^\s*_](?:[^*_\n]*[^\s*_])?)(?P=mark)(?!\w)"
    r"|^[ \t]{0,3}(?:#{1,6}|>|[-*+])[ \t]+"
    r"|\n[ \t]*(?=\n)",
    re.MULTILINE,
)
# Words that are the same on the page and in the text, whatever Markdown does around them.
_PLAIN_WORDS = re.compile(r"(?<![\w'\u2019])[^\W_]+(?: [^\W_]+){3,9}(?![\w'\u2019])")

SOURCES = {
    "memory": gettext_noop("notes"),
    "messages": gettext_noop("messages"),
    "sessions": gettext_noop("titles of chats"),
    "attachments": gettext_noop("files"),
}


Line = tuple[str, SafeString]
"""One line of a result: the role of its writer, or the headings that it is under, if any; and its text."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A card in the list. A conversation has one: its best message, or its title if none of its messages was found; and
    so has a file. `file_path`: the file itself, at the place that was found.
    """

    path: str
    title: str | SafeString
    name: str
    icon: str
    day: date
    lines: Sequence[Line]
    # What has one card: a conversation or a file.
    folded_by: UUID | None
    is_title: bool = False
    file_path: str = ""
    # The turn in which the user says otherwise: its address and its day.
    later: tuple[str, date] | None = None
    # The other messages of the conversation, folded: a list of one conversation alone does not help.
    more: list["Shown"] = field(default_factory=list)

    @property
    def is_titled_by_its_text(self) -> bool:
        """A record is called by its first line: a card that shows this line needs it once."""
        if self.folded_by is not None or not self.lines:
            return False
        first = unescape(strip_tags(self.lines[0][1]))
        return first.startswith(unescape(strip_tags(self.title)).removesuffix(ELLIPSIS))


Group = tuple[date | None, Sequence[Shown]]
"""Results under one heading, which is their day; None for all of them, the best first."""


@page_that_searches
def search(request: HttpRequest) -> HttpResponse:
    # Only `q` makes it a search: an address with filters and no words is the page before one.
    is_asked = bool(request.GET.get("q", "").strip())
    form = SearchForm(request.GET if request.GET else None)
    if not is_asked:
        return _page(request, form)
    if not form.is_valid():
        return _page(request, form, status=HTTPStatus.BAD_REQUEST)
    count_search(request)
    return _answer(request, form)


@page_that_searches
def search_live(request: HttpRequest) -> HttpResponse:
    """The first results, as a part of a page, while the user types `?q=`; without reranking, which takes longer."""
    query = short_query(request)
    if not query:
        with acting_as(caller_of(request)):
            return render(request, "memory/live.html")
    count_search(request)
    project = without_nul(request.GET.get("project", ""))[: LONGEST_PROJECT + 1]
    # While the user types: the number of results that fit below the titles.
    requested = HistoryRequest(query=query, max_results=8, project=project)
    history = search_history(requested, user=person_of(request), now=timezone.now())
    shown = _folded([_shown(result) for result in history.results])
    context = {"results": shown, "is_nearest": history.has_nothing_relevant or history.is_by_meaning_alone}
    with acting_as(caller_of(request)):
        return render(request, "memory/live.html", context)


def short_query(request: HttpRequest) -> str:
    """Raises `InvalidInput` if it is longer than the fields of the palette and of the map let anybody write."""
    query = without_nul(request.GET.get("q", "")).strip()
    return checked(query, field="q", max_length=200, may_be_blank=True)


def _answer(request: HttpRequest, form: SearchForm) -> HttpResponse:
    limit = MORE_RESULTS if "more" in request.GET else 20
    requested = HistoryRequest(
        query=form.cleaned_data["q"],
        scope=HistoryScope(form.cleaned_data["scope"] or HistoryScope.ALL),
        date_from=form.cleaned_data["from"],
        date_to=form.cleaned_data["to"],
        max_results=limit,
        reads_time=ANY_TIME not in request.GET,
        rerank=LOOK_AGAIN in request.GET,
        project=form.cleaned_data["project"],
    )
    try:
        history = search_history(requested, user=person_of(request), now=timezone.now())
    except (SearchFailed, Unavailable) as error:
        return _failed(request, form, error)
    by_day = request.GET.get("order") == BY_DAY
    return _page(
        request,
        form,
        history=history,
        counts=history.counts,
        count=count_in_words(history.counts, requested.scope),
        number=history.counts[requested.scope][0],
        groups=_groups(history, by_day=by_day),
        chips=chips(history.query) if history.query else [],
        can_look_again=len(history.results) > 1 and not (requested.rerank or by_day) and settings.RERANKER is not None,
        unfinished=[gettext(SOURCES[name]) for name in history.unfinished],
        can_have_more=limit < MORE_RESULTS and len(history.results) == limit,
    )


def _failed(request: HttpRequest, form: SearchForm, error: RecollectError) -> HttpResponse:
    """The query stays in the field, to be repeated."""
    response = _page(request, form, status=error.status, failure=error)
    if error.retryable:
        response["Retry-After"] = retry_after(error)
    return response


def _page(
    request: HttpRequest, form: SearchForm, *, status: int = HTTPStatus.OK, counts: Counts | None = None, **context: Any
) -> HttpResponse:
    """The page; for its own script, which searches while the user types, only the part that a search changes."""
    today = timezone.localdate()
    days = (form.cleaned_data.get("from"), form.cleaned_data.get("to")) if form.is_valid() else (None, None)
    context |= {
        "layout": "memory/part.html" if PART in request.headers else "intake/room.html",
        "form": form,
        "tabs": tabs(form, counts or {}),
        "chosen_days": range_in_words(*days, today),
        "ranges": ranges(today, days),
        "by_day": request.GET.get("order") == BY_DAY,
    }
    project = form.cleaned_data.get("project", "") if form.is_valid() else ""
    with acting_as(caller_of(request)):
        context |= within_choices(person_of(request), project)
        return render(request, "memory/search.html", context, status=status)


def _groups(history: History, *, by_day: bool) -> list[Group]:
    shown = [_shown(result) for result in history.results]
    if by_day:
        return [(day, _folded([shown[index] for index in indexes])) for day, indexes in history.by_day()]
    return [(None, _folded(shown))] if shown else []


def _folded(results: Sequence[Shown]) -> list[Shown]:
    """One card for each conversation and each file, in the place of its best result."""
    cards: list[Shown] = []
    places: dict[UUID, int] = {}
    for result in results:
        place = places.get(result.folded_by) if result.folded_by else None
        if place is None:
            if result.folded_by:
                places[result.folded_by] = len(cards)
            cards.append(result)
        elif cards[place].is_title:
            # The passage says more than the beginning of the chat. The title has its matches marked.
            cards[place] = replace(result, title=cards[place].title)
        elif result.is_title:
            cards[place] = replace(cards[place], title=result.title)
        else:
            cards[place].more.append(result)
    return cards


def _shown(result: HistoryMatch) -> Shown:
    reference, pieces = result.reference, result.pieces
    name, icon = KINDS[reference.kind]
    named = reference.file or reference.session
    title = marked(Excerpt(named, [])) if named else _title_of_note(result)
    if reference.kind is Kind.SESSION:
        # Its first passage is its title, with the matches in it.
        title, pieces = marked(pieces[0].own), pieces[1:]
    return Shown(
        path=path_to(reference, words=_words_to_open_at(pieces)),
        title=title,
        name=gettext(name),
        icon=icon,
        day=reference.day,
        lines=[
            (
                # Above a note the headings, and above a file the place in it.
                gettext(WHO[piece.before])
                if piece.before in WHO
                else piece.headings
                if reference.place is None
                else place_in_words(reference.place),
                # A card shows at most so many lines of each writer, because a long list would fill the page.
                marked(within_lines(piece.own, 8)),
            )
            for piece in pieces
            if piece.own.text
        ],
        folded_by=reference.attachment_id or reference.conversation_id,
        is_title=reference.kind is Kind.SESSION,
        file_path=_file_path(reference),
        later=(path_to(result.later), result.later.day) if result.later else None,
    )


def _file_path(reference: Reference) -> str:
    if reference.attachment_id is None:
        return ""
    if reference.address:
        return page_path(reference.attachment_id, reference.part or 0)
    return file_path(reference.attachment_id, reference.place)


def _words_to_open_at(pieces: Sequence[Piece]) -> str:
    """Some words of the excerpt as on the page, if it is from a further passage; else none."""
    for piece in pieces:
        text, highlights = piece.own.text, piece.own.highlights
        if piece.before and text.startswith(ELLIPSIS):
            place = highlights[0][0] if highlights else 0
            runs = list(_PLAIN_WORDS.finditer(text))
            return next((run[0] for run in runs if run.end() > place), runs[-1][0] if runs else "")
    return ""


def _title_of_note(result: HistoryMatch) -> str:
    if result.reference.record_id is not None:
        return result.reference.first_line
    of_project = f" · {result.reference.project}" if result.reference.project else ""
    if result.reference.document is not None:
        named = result.reference.document
        if named == MemoryDocument.Kind.ABOUT.label:
            return gettext("Who I am")
        return (gettext("What always holds") if named == Corpus.MEMORY.label else named) + of_project
    if result.reference.kind is not Kind.DAILY_LOG:
        return gettext("What always holds")
    day = result.reference.day
    return f"{date_format(day, 'l')}, {date_format(day, 'DATE_FORMAT')}{of_project}"


def marked(excerpt: Excerpt) -> SafeString:
    """The excerpt as HTML, without Markdown's marks: every character is escaped, the matches are in `<mark>`."""
    return mark_safe("".join(_marked_pieces(excerpt)))  # noqa: S308 - each piece is escaped


def _marked_pieces(excerpt: Excerpt) -> Iterator[str]:
    end = 0
    kept = _kept(excerpt.text)
    for start, stop in excerpt.highlights:
        yield escape("".join(compress(excerpt.text[end:start], kept[end:start])))
        if match := "".join(compress(excerpt.text[start:stop], kept[start:stop])):
            yield f"<mark>{escape(match)}</mark>"
        end = stop
    yield escape("".join(compress(excerpt.text[end:], kept[end:])))


def _kept(text: str) -> list[bool]:
    """For each character whether it is text and not a mark of Markdown; the words of links and emphasis are text."""
    kept = [True] * len(text)
    for found in _MARKUP.finditer(text):
        words = range(*found.span("words" if found["words"] is not None else "stressed"))
        for place in range(*found.span()):
            kept[place] = place in words
    return kept
