"""The pages `/memory/timeline/` and `/memory/map/`: all texts of a user, by time and by subject."""

from collections.abc import Sequence
from datetime import date
from itertools import groupby
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone

from chat.pages.common import count_search, page_for_registered, page_that_searches, project_of, show
from chat.pages.narrowing import within_choices
from chat.pages.searching import short_query
from chat.rest.overview import MOST_SKIPPED, month_of, text_id_of
from core.errors import InvalidInput, NotFound
from core.responses import problem_response
from intake.accounts.identity import person_of
from memory.addresses import path_to
from memory.models import Corpus
from memory.overview import atlas, reading
from memory.overview.reading import MonthOutput, WordOutput

SOURCE_ICONS = {Corpus.CHAT: "chat", Corpus.DAILY_LOG: "day", Corpus.MEMORY: "note", Corpus.RECORD: "pin"}

Bar = tuple[str, float, float]
"""A part of a month's column: its kind, where it begins and its height, in hundredths of the tallest column."""

Column = tuple[MonthOutput, list[Bar], list[tuple[WordOutput, int]]]
"""A month, the parts of its column, and its words with their sizes."""

Year = tuple[int, list[Column], list[tuple[int, float]]]
"""A year, its columns, the latest month first, and (position, height) of each month in the small chart."""


@page_for_registered
def timeline_page(request: HttpRequest) -> HttpResponse:
    user, project = person_of(request), project_of(request)
    found = reading.read_timeline(user=user, now=timezone.now(), project=project)
    context: dict[str, Any] = {"found": found, "years": _years(found.months), **within_choices(user, project)}
    return show(request, "memory/timeline.html", tab="timeline", today=timezone.localdate(), **context)


@page_for_registered
def month_page(request: HttpRequest, month: str) -> HttpResponse:
    first = month_of(month)
    text = request.GET.get("skip", "0")
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(MOST_SKIPPED)):
        raise NotFound
    skip = min(int(text), MOST_SKIPPED)
    user, project = person_of(request), project_of(request)
    found = reading.read_month(user=user, first=first, skip=skip, project=project)
    if not found.entries and not skip and not project:
        raise NotFound
    entries = [(entry, path_to(entry.reference), SOURCE_ICONS[entry.corpus]) for entry in found.entries]
    days = [(day, list(of_day)) for day, of_day in groupby(entries, key=lambda each: timezone.localdate(each[0].at))]
    months = {each.first: each for each in reading.read_timeline(user=user, now=timezone.now(), project=project).months}
    context: dict[str, Any] = {
        "first": first,
        "month": months.get(first),
        "days": days,
        "more": found.more,
        "before": _neighbour(months, first, earlier=True),
        "after": _neighbour(months, first, earlier=False),
        **within_choices(user, project),
    }
    return show(request, "memory/month.html", tab="timeline", **context)


@page_for_registered
def map_page(request: HttpRequest) -> HttpResponse:
    user, project = person_of(request), project_of(request)
    found = atlas.read_atlas(user=user, now=timezone.now(), project=project)
    clusters = [
        # The style sheet has a dozen cluster colours, used in turn: `hue-0` and on.
        (cluster, cluster.number % 12, [(text, path_to(text.reference)) for text in cluster.newest])
        for cluster in found.clusters
    ]
    about = within_choices(user, project)
    return show(request, "memory/map.html", tab="map", found=found, clusters=clusters, **about)


@page_that_searches
def map_found(request: HttpRequest) -> HttpResponse:
    """The ids of the texts that a search finds, the best first, as JSON; a problem document for a query too long."""
    try:
        query = short_query(request)
    except InvalidInput as error:
        return problem_response(error, request)
    count_search(request)
    user, project = person_of(request), project_of(request)
    ids = atlas.find_texts(user=user, query=query, now=timezone.now(), project=project) if query else []
    return JsonResponse({"ids": ids})


@page_for_registered
def map_text(request: HttpRequest, text_id: str) -> HttpResponse:
    """The details of a point, as a part of a page."""
    text = atlas.read_text(user=person_of(request), text_id=text_id_of(text_id))
    context = {"text": text, "path": path_to(text.reference), "icon": SOURCE_ICONS[text.corpus]}
    return render(request, "memory/_map_text.html", context)


def _years(months: Sequence[MonthOutput]) -> list[Year]:
    most = max((month.total for month in months), default=0)
    years: list[Year] = []
    for year, of_year in groupby(months, key=lambda month: month.first.year):
        columns = [_column(month, most) for month in of_year]
        marks = [(month.first.month - 1, sum(height for *_, height in bars)) for month, bars, _ in columns]
        years.append((year, columns[::-1], marks))
    return years[::-1]


def _column(month: MonthOutput, most: int) -> Column:
    """Chats at the bottom, the rest above them."""
    kinds = (("turns", month.turns), ("logs", month.logs), ("kept", month.records + month.notes))
    # A month with any text is seen.
    tall = max(2.5, 100 * month.total / most) if month.total else 0.0
    bars: list[Bar] = []
    below = 0.0
    for kind, count in kinds:
        if count:
            height = tall * count / month.total
            bars.append((kind, below, height))
            below += height
    # The first words of a month are the largest: the number of words of each size.
    return month, bars, list(zip(month.words, (1, 1, 1, 2, 2, 2, 3, 3), strict=False))


def _neighbour(months: dict[date, MonthOutput], first: date, *, earlier: bool) -> date | None:
    """The nearest month with any text before or after this one."""
    filled = [each for each, month in months.items() if month.total and (each < first if earlier else each > first)]
    return (max if earlier else min)(filled, default=None)
