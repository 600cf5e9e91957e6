"""The search page, the timeline and the map.

The page `/search/`: `search_history` for people. Its address contains the whole query, so it can be bookmarked.
"""

import asyncio
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from http import HTTPStatus
from itertools import compress, groupby
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext_lazy as _

from core import rate_limits
from core.errors import InvalidInput, NotFound, RecollectError, SearchFailed, Unavailable
from core.isolation.acting import acting_as, read_as
from core.responses import problem_response, retry_after
from core.text import ELLIPSIS, LONGEST_PROJECT
from core.validation import checked
from intake.accounts.identity import caller_of, person_of
from intake.agent.language_models import default_for, is_recall_mode
from intake.chats.services import without_nul
from intake.passwords import give_connections_back
from intake.web.pages import PART
from memory.chunking import ASSISTANT_LABEL, USER_LABEL
from memory.models import Corpus, MemoryDocument, MemoryMap, TellingWord
from memory.models.embeddings import NAMED
from memory.overview import drawing, reading
from memory.overview.reading import ClusterOutput, MonthOutput, WordOutput
from memory.pages.common import (
    SearchForm,
    file_path,
    page_for_registered,
    page_that_searches,
    path_to,
    place_in_words,
    show,
)
from memory.pages.narrowing import chips, count_in_words, range_in_words, ranges, tabs, within_choices
from memory.rest.overview import MOST_SKIPPED, month_of, text_id_of
from memory.search.excerpts import Excerpt, Piece
from memory.search.history import Counts, History, HistoryMatch, HistoryRequest, search_history
from memory.search.sources import HistoryScope, Kind, Reference

logger = logging.getLogger(__name__)

RESULTS = 20
MORE_RESULTS = 50
# While the user types: the number of results that fit below the titles.
LIVE_RESULTS = 8
LONGEST_LIVE = 200
BY_DAY = "day"
PAGE = "memory/search.html"
# The parameter that turns off reading dates in the query.
ANY_TIME = "anytime"
# The parameter with which the page requests reranking, after it has shown the first order.
LOOK_AGAIN = "again"

NAMES = {
    Kind.MESSAGE: gettext_noop("Message"),
    Kind.SESSION: gettext_noop("Chat"),
    Kind.MEMORY: gettext_noop("Note"),
    Kind.DAILY_LOG: gettext_noop("Daily log"),
    Kind.ATTACHMENT: gettext_noop("File"),
}
ICONS = {
    Kind.MESSAGE: "chat",
    Kind.SESSION: "chat",
    Kind.MEMORY: "note",
    Kind.DAILY_LOG: "day",
    Kind.ATTACHMENT: "file",
}
WHO = {USER_LABEL: gettext_noop("You"), ASSISTANT_LABEL: "Recollect"}
# The lines around a block of code, the row under a table's head, and the edges of its rows; strong, struck out, code; a
# link; emphasis; the mark of a heading, a quotation or a list at a line's beginning; and an empty line, for which there
# is no room.
_MARKUP = re.compile(
    r"^[ \t]*+(?:`{3}[^`\n]*|~{3}[^\n]*)$\n?|^[ \t]*+\|[-:| \t]*+$\n?|^[ \t]*+\|[ \t]*+|\|[ \t]*+$"
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
    rate_limits.take_for("api", user_id=person_of(request).pk, address=rate_limits.client_address(request))
    return _answer(request, form)


@page_that_searches
def search_live(request: HttpRequest) -> HttpResponse:
    """The first results, as a part of a page, while the user types `?q=`; without reranking, which takes longer."""
    query = _short_query(request)
    if not query:
        return read_as(caller_of(request), lambda: render(request, "memory/live.html"))
    rate_limits.take_for("api", user_id=person_of(request).pk, address=rate_limits.client_address(request))
    project = without_nul(request.GET.get("project", ""))[: LONGEST_PROJECT + 1]
    requested = HistoryRequest(query=query, max_results=LIVE_RESULTS, project=project)
    history = search_history(requested, user=person_of(request), now=timezone.now())
    shown = _folded([_shown(result) for result in history.results])
    context = {"results": shown, "is_nearest": history.has_nothing_relevant or history.is_by_meaning_alone}
    return read_as(caller_of(request), lambda: render(request, "memory/live.html", context))


def _short_query(request: HttpRequest) -> str:
    """Raises `InvalidInput` if it is longer than the fields of the palette and of the map let anybody write."""
    query = without_nul(request.GET.get("q", "")).strip()
    return checked(query, field="q", max_length=LONGEST_LIVE, may_be_blank=True)


def _answer(request: HttpRequest, form: SearchForm) -> HttpResponse:
    limit = MORE_RESULTS if "more" in request.GET else RESULTS
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
    is_part = PART in request.headers
    today = timezone.localdate()
    days = (form.cleaned_data.get("from"), form.cleaned_data.get("to")) if form.is_valid() else (None, None)
    context |= {
        "layout": "memory/part.html" if is_part else "intake/room.html",
        "form": form,
        "tabs": tabs(form, counts or {}),
        "chosen_days": range_in_words(*days, today),
        "ranges": ranges(today, days),
        "by_day": request.GET.get("order") == BY_DAY,
        "place": "search",
    }
    project = form.cleaned_data.get("project", "") if form.is_valid() else ""

    def shown() -> HttpResponse:
        found = context | within_choices(person_of(request), project)
        return render(request, PAGE, found, status=status) if is_part else show(request, PAGE, status=status, **found)

    return read_as(caller_of(request), shown)


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
    named = reference.file or reference.session
    title = marked(Excerpt(named, [])) if named else _title_of_note(result)
    if reference.kind is Kind.SESSION:
        # Its first passage is its title, with the matches in it.
        title, pieces = marked(pieces[0].own), pieces[1:]
    return Shown(
        path=path_to(reference, words=_words_to_open_at(pieces)),
        title=title,
        name=gettext(NAMES[reference.kind]),
        icon=ICONS[reference.kind],
        day=reference.day,
        lines=[
            (gettext(WHO[piece.before]) if piece.before in WHO else _above(piece, reference), marked(piece.own))
            for piece in pieces
            if piece.own.text
        ],
        folded_by=reference.attachment_id or reference.conversation_id,
        is_title=reference.kind is Kind.SESSION,
        file_path=file_path(reference.attachment_id, reference.place) if reference.attachment_id else "",
        later=(path_to(result.later), result.later.day) if result.later else None,
    )


def _above(piece: Piece, reference: Reference) -> str:
    """The headings of a note, or the place in a file."""
    return piece.headings if reference.place is None else place_in_words(reference.place)


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
        return gettext("About me") if named == MemoryDocument.Kind.ABOUT.label else named + of_project
    if result.reference.kind is not Kind.DAILY_LOG:
        return "MEMORY.md"
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


# --- `/memory/timeline/` and `/memory/map/`: all texts of a user, by time and by subject ---

SOURCE_NAMES = {
    Corpus.CHAT: _("Chats"),
    Corpus.DAILY_LOG: _("Daily logs"),
    Corpus.MEMORY: _("Notes"),
    Corpus.RECORD: _("Records"),
}
SOURCE_ICONS = {Corpus.CHAT: "chat", Corpus.DAILY_LOG: "day", Corpus.MEMORY: "note", Corpus.RECORD: "pin"}
# The number of cluster colours, used in turn: `hue-0` and on in the style sheet.
HUES = 12
TALLEST = 100.0
# The minimum height of a month with any text.
LEAST_TALL = 2.5
# The first words of a month are the largest: the number of words of each size.
SIZES = (1, 1, 1, 2, 2, 2, 3, 3)


@dataclass(frozen=True, slots=True)
class Bar:
    """A part of a month's column, in hundredths of the tallest, measured from above."""

    kind: str
    top: float
    height: float

    @property
    def start(self) -> float:
        """From the bottom, or from the left where columns are horizontal."""
        return TALLEST - self.top - self.height


Column = tuple[MonthOutput, list[Bar], list[tuple[WordOutput, int]]]
"""A month, the parts of its column, and its words with their sizes."""


Year = tuple[int, list[Column], list[tuple[int, float]]]
"""A year, its columns, the latest month first, and (position, height) of each month in the small chart."""


@page_for_registered
def timeline_page(request: HttpRequest) -> HttpResponse:
    found = reading.read_timeline(user=person_of(request), now=timezone.now())
    years = _years(found.months)
    context: dict[str, Any] = {"found": found, "years": years, "today": timezone.localdate()}
    return show(request, "memory/timeline.html", place="memory", tab="timeline", **context)


@page_for_registered
def month_page(request: HttpRequest, month: str) -> HttpResponse:
    first = month_of(month)
    skip = _skipped(request.GET.get("skip", "0"))
    user = person_of(request)
    found = reading.read_month(user=user, first=first, skip=skip)
    if not found.entries and not skip:
        raise NotFound
    entries = [(entry, path_to(entry.reference), SOURCE_ICONS[entry.corpus]) for entry in found.entries]
    days = [(day, list(of_day)) for day, of_day in groupby(entries, key=lambda each: timezone.localdate(each[0].at))]
    months = {each.first: each for each in reading.read_timeline(user=user, now=timezone.now()).months}
    context: dict[str, Any] = {
        "first": first,
        "month": months.get(first),
        "days": days,
        "more": found.more,
        "before": _neighbour(months, first, earlier=True),
        "after": _neighbour(months, first, earlier=False),
    }
    return show(request, "memory/month.html", place="memory", tab="timeline", **context)


@page_for_registered
def map_page(request: HttpRequest) -> HttpResponse:
    found = reading.read_atlas(user=person_of(request), now=timezone.now())
    clusters = [
        (cluster, cluster.number % HUES, [(text, path_to(text.reference)) for text in cluster.newest])
        for cluster in found.clusters
    ]
    context: dict[str, Any] = {
        "found": found,
        "clusters": clusters,
        "naming": _naming(request, found.clusters),
        "sources": [(place, SOURCE_NAMES[corpus]) for place, corpus in enumerate(Corpus) if corpus in SOURCE_NAMES],
    }
    return show(request, "memory/map.html", place="memory", tab="map", **context)


@page_that_searches
def map_found(request: HttpRequest) -> HttpResponse:
    """The ids of the texts that a search finds, the best first, as JSON; a problem document for a query too long."""
    try:
        query = _short_query(request)
    except InvalidInput as error:
        return problem_response(error, request)
    rate_limits.take_for("api", user_id=person_of(request).pk, address=rate_limits.client_address(request))
    ids = reading.find_texts(user=person_of(request), query=query, now=timezone.now()) if query else []
    return JsonResponse({"ids": ids})


# The longest that a page waits for a model to name the groups.
NAMING_SECONDS = 60.0
# Of each text of a group that the model reads.
READ_OF_TEXT = 160
NO_NAMES = gettext_noop("The model did not name the groups. Try again.")
NEW_GROUPS = gettext_noop("The map was drawn anew meanwhile. Try again.")


@page_that_searches
def map_names(request: HttpRequest) -> HttpResponse:
    """Let the user's model name the groups, or with `do=undo` take the names back. No transaction waits for it."""
    user = person_of(request)
    if request.POST.get("do") == "undo":
        drawing.forget_names(user)
    elif request.method == "POST":
        rate_limits.take_for("chat", user_id=user.pk, address=rate_limits.client_address(request))
        if trouble := _name_groups(request):
            messages.error(request, trouble)
    return HttpResponseRedirect(reverse("memory:map"))


def _name_groups(request: HttpRequest) -> str:
    """What went wrong; empty if the groups have names."""
    from intake.agent.titles import suggest_names

    user, caller = person_of(request), caller_of(request)
    with acting_as(user):
        clusters = reading.read_atlas(user=user, now=timezone.now()).clusters
        layout = MemoryMap.objects.filter(pk=user.pk).values_list("layout", flat=True).first()
        model = default_for(caller)
    if model is None or layout is None or not clusters:
        return gettext(NO_NAMES)

    async def ask() -> dict[int, str]:
        async with asyncio.timeout(NAMING_SECONDS):
            return await suggest_names(caller, model=model, groups=_groups_of(clusters))

    give_connections_back()
    try:
        names = async_to_sync(ask)()
    except Exception as error:  # whatever a server answers, the groups keep their names
        logger.warning("The groups of a map were not named (%s)", type(error).__name__)
        return gettext(NO_NAMES)
    texts = {cluster.number: cluster.newest[0].id for cluster in clusters if cluster.newest}
    is_kept = drawing.keep_names(user, names, layout=bytes(layout), texts=texts)
    if not is_kept:
        return gettext(NEW_GROUPS)
    return "" if names else gettext(NO_NAMES)


def _groups_of(clusters: Sequence[ClusterOutput]) -> list[tuple[int, list[str], list[str]]]:
    return [
        (cluster.number, cluster.words, [text.snippet[:READ_OF_TEXT] for text in cluster.newest])
        for cluster in clusters
    ]


def _naming(request: HttpRequest, clusters: Sequence[ClusterOutput]) -> dict[str, Any] | None:
    """What the page says of names by a model: who would make them, and of how many tokens."""
    if TellingWord.objects.filter(user=person_of(request), rank=NAMED).exists():
        return {"is_done": True}
    model = default_for(caller_of(request))
    if model is None or not clusters or is_recall_mode():
        return None
    from intake.agent.models import tokens_of
    from intake.agent.titles import NAMING, groups_in_words

    tokens = tokens_of(NAMING + groups_in_words(_groups_of(clusters)))
    return {"model": model.name, "tokens": -(-tokens // 100) * 100}


@page_for_registered
def map_text(request: HttpRequest, text_id: str) -> HttpResponse:
    """The details of a point, as a part of a page."""
    text = reading.read_text(user=person_of(request), text_id=text_id_of(text_id))
    context = {"text": text, "path": path_to(text.reference), "icon": SOURCE_ICONS[text.corpus]}
    return render(request, "memory/_map_text.html", context)


def _years(months: Sequence[MonthOutput]) -> list[Year]:
    most = max((month.total for month in months), default=0)
    years: list[Year] = []
    for year, of_year in groupby(months, key=lambda month: month.first.year):
        columns = [_column(month, most) for month in of_year]
        marks = [(month.first.month - 1, bars[-1].top if bars else TALLEST) for month, bars, _ in columns]
        years.append((year, columns[::-1], [(place, TALLEST - top) for place, top in marks]))
    return years[::-1]


def _column(month: MonthOutput, most: int) -> Column:
    """Chats at the bottom, the rest above them."""
    kinds = (("turns", month.turns), ("logs", month.logs), ("kept", month.records + month.notes))
    tall = max(LEAST_TALL, TALLEST * month.total / most) if month.total else 0.0
    bars: list[Bar] = []
    below = 0.0
    for kind, count in kinds:
        if count:
            height = tall * count / month.total
            bars.append(Bar(kind, round(TALLEST - below - height, 2), round(height, 2)))
            below += height
    return month, bars, list(zip(month.words, SIZES, strict=False))


def _neighbour(months: dict[date, MonthOutput], first: date, *, earlier: bool) -> date | None:
    """The nearest month with any text before or after this one."""
    filled = [each for each, month in months.items() if month.total and (each < first if earlier else each > first)]
    return (max(filled) if earlier else min(filled)) if filled else None


def _skipped(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(MOST_SKIPPED)):
        raise NotFound
    return min(int(text), MOST_SKIPPED)
