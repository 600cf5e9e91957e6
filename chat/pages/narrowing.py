"""What narrows a search on its page: a tab for each kind of text, the dates, a project, and the query's operators."""

from calendar import monthrange
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any
from urllib.parse import urlencode

from django.utils.formats import date_format
from django.utils.translation import gettext, gettext_noop

from chat.pages.common import SCOPES, SearchForm
from intake.chats.project_groups import list_groups
from intake.models import User
from memory.search.history import MAX_RESULTS, Counts
from memory.search.query import Query, parse_query, without_operator
from memory.search.sources import HistoryScope

SPEAKERS = {"me": gettext_noop("said by you"), "assistant": gettext_noop("in answers")}

Tab = tuple[str, str, str, bool]
"""The scope as in the address, or nothing for everything; the name; the count in words; and whether it is chosen."""

Days = tuple[str, date | None, date | None, bool]
"""The name of a range, its first and its last day, and whether it is chosen."""


def tabs(form: SearchForm, counts: Counts) -> list[Tab]:
    """A tab for each kind, with its number of results if this search knows it."""
    chosen = form.chosen_scope
    known = {scope.value: count_in_words(counts, scope) for scope in counts}
    return [
        ("" if value == HistoryScope.ALL else value, str(name), known.get(value, ""), value == chosen)
        for value, name in SCOPES
        if value != HistoryScope.MEMORY or value == chosen
    ]


def count_in_words(counts: Counts, scope: HistoryScope) -> str:
    """Such as 12, or 12+ where there may be more; at most 50+, which is what the page lists. Nothing if unknown."""
    count, may_be_more = counts.get(scope, (0, True))
    if count > MAX_RESULTS or may_be_more:
        return f"{min(count, MAX_RESULTS)}+" if count else ""
    return str(count)


def ranges(today: date, chosen: tuple[date | None, date | None]) -> list[Days]:
    """The ranges that are one click away."""
    return [(gettext(name), *days, days == chosen) for name, days in _ranges(today)]


def _ranges(today: date) -> Iterator[tuple[str, tuple[date, date]]]:
    monday = today - timedelta(days=today.weekday())
    yield gettext_noop("Today"), (today, today)
    yield gettext_noop("This week"), (monday, monday + timedelta(days=6))
    yield gettext_noop("This month"), (today.replace(day=1), _end_of_month(today))
    yield gettext_noop("This year"), _year(today.year)
    yield gettext_noop("Last year"), _year(today.year - 1)


def _year(year: int) -> tuple[date, date]:
    return date(year, 1, 1), date(year, 12, 31)


def _end_of_month(day: date) -> date:
    return day.replace(day=monthrange(day.year, day.month)[1])


def range_in_words(first: date | None, last: date | None, today: date) -> str:
    """Empty without a date."""
    named = next((name for name, days in _ranges(today) if days == (first, last)), None)
    if named is not None:
        return gettext(named)
    if first is None or last is None:
        sentence, day = (gettext("from %(day)s on"), first) if first else (gettext("until %(day)s"), last)
        return sentence % {"day": date_format(day, "DATE_FORMAT")} if day else ""
    if (first, last) == _year(first.year):
        return str(first.year)
    if first.day == 1 and last == _end_of_month(first):
        return date_format(first, "YEAR_MONTH_FORMAT")
    if first == last:
        return date_format(first, "DATE_FORMAT")
    days = {"first": date_format(first, "SHORT_DATE_FORMAT"), "last": date_format(last, "SHORT_DATE_FORMAT")}
    return gettext("%(first)s to %(last)s") % days


def within(project: str) -> dict[str, Any]:
    """The project in an address: its `name`, whether it is left out, both as the address says them, and the query."""
    name = project.removeprefix("-")
    if not name:
        return {}
    query = urlencode({"project": project})
    return {"name": name, "is_without": name != project, "only": name, "without": f"-{name}", "query": query}


def within_choices(user: User, project: str) -> dict[str, Any]:
    """The projects that are one click away, and the chosen one. Call it while acting as the user."""
    chosen = within(project)
    groups, _ = list_groups(user=user, open_keys=(), current=chosen.get("name", ""))
    return {"within": chosen, "within_choices": [(each["name"], each["colour"]) for each in groups]}


def chips(query: Query) -> list[tuple[str, str]]:
    """Each operator of the query in words, and the query without it."""
    # An exclusion needs a word before it.
    return [(_in_words(parse_query(f"x {each}")), without_operator(query.written, each)) for each in query.operators]


def _in_words(operator: Query) -> str:
    match operator:
        case Query(quotations=(words,)):
            label = gettext("exactly “%(words)s”") % {"words": words}
        case Query(excluded=(words,)):
            label = gettext("without “%(words)s”") % {"words": words}
        case Query(titles=(title,)):
            label = gettext("in chats named “%(title)s”") % {"title": title}
        case Query(speaker=str() as speaker):
            label = gettext(SPEAKERS[speaker])
        case Query(before=date() as day):
            label = gettext("before %(day)s") % {"day": date_format(day, "DATE_FORMAT")}
        case Query(after=date() as day):
            label = gettext("from %(day)s on") % {"day": date_format(day, "DATE_FORMAT")}
        case _:
            label = gettext("with code")
    return label
