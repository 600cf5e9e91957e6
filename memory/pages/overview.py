"""`/memory/timeline/` and `/memory/map/`: all texts of a user, by time and by subject."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from core.errors import NotFound
from intake.identity import person_of
from memory.models import Corpus
from memory.overview import atlas, timeline
from memory.overview.timeline import Month, MonthWord
from memory.pages.common import page_for_people, path_to, show
from memory.rest.overview import MOST_SKIPPED, month_of, text_id_of

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


@dataclass(frozen=True, slots=True)
class Column:
    month: Month
    bars: list[Bar]
    words: list[tuple[MonthWord, int]]


@dataclass(frozen=True, slots=True)
class Year:
    """A year's columns, the latest month first. `marks`: (position, height) of each month in the small chart."""

    year: int
    columns: list[Column]
    total: int
    marks: list[tuple[int, float]]


@page_for_people
def timeline_page(request: HttpRequest) -> HttpResponse:
    found = timeline.read_timeline(user=person_of(request), now=timezone.now())
    years = _years(found.months)
    context: dict[str, Any] = {"found": found, "years": years, "today": timezone.localdate()}
    return show(request, "memory/timeline.html", place="memory", tab="timeline", **context)


@page_for_people
def month_page(request: HttpRequest, month: str) -> HttpResponse:
    first = month_of(month)
    skip = _skipped(request.GET.get("skip", "0"))
    user = person_of(request)
    found = timeline.read_month(user=user, first=first, skip=skip)
    if not found.entries and not skip:
        raise NotFound
    entries = [(entry, path_to(entry.reference), SOURCE_ICONS[entry.corpus]) for entry in found.entries]
    days = [(day, list(of_day)) for day, of_day in groupby(entries, key=lambda each: timezone.localdate(each[0].at))]
    months = {each.first: each for each in timeline.read_timeline(user=user, now=timezone.now()).months}
    context: dict[str, Any] = {
        "first": first,
        "month": months.get(first),
        "days": days,
        "more": found.more,
        "before": _neighbour(months, first, earlier=True),
        "after": _neighbour(months, first, earlier=False),
    }
    return show(request, "memory/month.html", place="memory", tab="timeline", **context)


@page_for_people
def map_page(request: HttpRequest) -> HttpResponse:
    found = atlas.read_atlas(user=person_of(request), now=timezone.now())
    clusters = [
        (cluster, cluster.number % HUES, [(text, path_to(text.reference)) for text in cluster.newest])
        for cluster in found.clusters
    ]
    context: dict[str, Any] = {
        "found": found,
        "clusters": clusters,
        "sources": [(place, SOURCE_NAMES[corpus]) for place, corpus in enumerate(Corpus)],
    }
    return show(request, "memory/map.html", place="memory", tab="map", **context)


@page_for_people
def map_text(request: HttpRequest, text_id: str) -> HttpResponse:
    """The details of a point, as a part of a page."""
    text = atlas.read_text(user=person_of(request), text_id=text_id_of(text_id))
    context = {"text": text, "path": path_to(text.reference), "icon": SOURCE_ICONS[text.corpus]}
    return render(request, "memory/_map_text.html", context)


def _years(months: Sequence[Month]) -> list[Year]:
    most = max((month.total for month in months), default=0)
    years = []
    for year, of_year in groupby(months, key=lambda month: month.first.year):
        columns = [_column(month, most) for month in of_year]
        marks = [(column.month.first.month - 1, column.bars[-1].top if column.bars else TALLEST) for column in columns]
        total = sum(column.month.total for column in columns)
        years.append(Year(year, columns[::-1], total, [(place, TALLEST - top) for place, top in marks]))
    return years[::-1]


def _column(month: Month, most: int) -> Column:
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
    return Column(month, bars, list(zip(month.words, SIZES, strict=False)))


def _neighbour(months: dict[date, Month], first: date, *, earlier: bool) -> date | None:
    """The nearest month with any text before or after this one."""
    filled = [each for each, month in months.items() if month.total and (each < first if earlier else each > first)]
    return (max(filled) if earlier else min(filled)) if filled else None


def _skipped(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(MOST_SKIPPED)):
        raise NotFound
    return min(int(text), MOST_SKIPPED)
