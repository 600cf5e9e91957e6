"""Reads dates in a question: "yesterday", "last Tuesday", "in the week before Easter", as days in the user's time zone.

A small grammar of our own and not a library: a wrong window hides the answer, so only phrases that clearly mean a time
in the past count. "May" alone may be a verb; "on Tuesday" may be next week's, unless the question is about the past.

A question that says more than a time ("the roof, in March") hides nothing: texts of that time are only preferred. For
that, the months and days that it names are read without today's date as well (`preferred_times`).

Relative times are read in English, German, Spanish and French, days and months of the calendar also in Italian, Dutch,
Portuguese, Chinese, Japanese and Korean. Pure: from a text and today's date to the days and their words.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from memory.time_words import (
    FEASTS,
    FILLER,
    INTENT,
    MONTH_NAMES,
    MONTHS,
    NUMBERS,
    ORDINAL_DAYS,
    ORDINAL_WEEKS,
    PAST,
    SEASONS,
    UNITS,
    WEEKDAYS,
)

DAY = timedelta(days=1)
WEEK = timedelta(weeks=1)
# "1,000 years ago" is before anything that a user wrote here.
MOST = 200
# What happened in March may be told in April. But "yesterday" is when something was told, and counts twice.
SURELY = 2.0


class Days(NamedTuple):
    """From the first to the last, both included."""

    first: date
    last: date


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """The days of a question. `words`: the words for them. `topic`: the rest of the question, if any."""

    days: Days
    words: str
    topic: str


# Chinese and Japanese have no spaces: each character counts.
_WORD = re.compile(r"[\u3040-\u9fff]|[^\W\u3040-\u9fff]+")


def find_window(query: str, *, today: Callable[[], date]) -> TimeWindow | None:
    """The first time that the question clearly names; None if it names none, or one that has not begun.

    `today` is called only if there is a phrase of time, because it reads the user's time zone.
    """
    folded = _fold(query)
    is_past = PAST.search(folded) is not None and INTENT.search(folded) is None
    for pattern, days_of, needs_past in RULES:
        for match in pattern.finditer(folded):
            if needs_past and not is_past:
                continue
            days = days_of(match, today())
            if days is not None and days.first <= today():
                words = query[match.start() : match.end()].strip()
                topic = " ".join(f"{query[: match.start()]} {query[match.end() :]}".split()).strip(" ,;:")
                says_more = not FILLER.issuperset(_WORD.findall(_fold(topic)))
                return TimeWindow(Days(days.first, min(days.last, today())), words, topic if says_more else "")
    return None


def moments_of(first: date | None, last: date | None, zone: ZoneInfo) -> tuple[datetime | None, datetime | None]:
    """The beginning of the first day and the end of the last one, in this zone; None for an open side.

    A day lasts until the next one begins, also if it has 23 or 25 hours.
    """
    return (
        None if first is None else _beginning(first, zone),
        None if last is None or last == date.max else _beginning(last + DAY, zone),
    )


def _beginning(day: date, zone: ZoneInfo) -> datetime:
    """If the clock skips midnight, the time of the skip; if midnight occurs twice, the first one."""
    midnight = datetime.combine(day, time.min, tzinfo=zone)
    # In UTC, because comparing two times of one zone compares only their clock times.
    try:
        return midnight.astimezone(UTC)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _fold(text: str) -> str:
    """In lower case and without accents, without moving any character. A syllable of Hangul stays whole."""
    return "".join(
        character if "가" <= character <= "힣" else unicodedata.normalize("NFD", character.lower())[:1] or " "
        for character in text
    )


@dataclass(frozen=True, slots=True)
class PreferredTimes:
    """The months and days that a question names; a year is None where it names none, and then each year's counts.

    `windows`: days relative to today, such as those of "last week". `words`: the words of the question for them.
    """

    months: tuple[tuple[int | None, int], ...] = ()
    days: tuple[tuple[int | None, int, int], ...] = ()
    windows: tuple[Days, ...] = ()
    words: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.months or self.days or self.windows)

    def match(self, day: date) -> tuple[float, float]:
        """How far a text of this day is of a named month, and within a day of a named day: 0 or 1, or `SURELY`.

        Conversations go on past midnight, and a time zone may be another one than then: hence the day beside it.
        """
        if any(first <= day <= last for first, last in self.windows):
            return SURELY, SURELY
        near = (day - DAY, day, day + DAY)
        is_of_month = any(day.month == month and year in (None, day.year) for year, month in self.months)
        is_of_day = any(
            each.month == month and each.day == number and year in (None, each.year)
            for year, month, number in self.days
            for each in near
        )
        # A window of fewer than three days is a day and those beside it.
        is_beside = any(
            first <= each <= last for first, last in self.windows if last - first < timedelta(days=3) for each in near
        )
        return float(is_of_month), float(is_of_day or is_beside)


NO_TIMES = PreferredTimes()


def preferred_times(query: str, window: TimeWindow | None = None) -> PreferredTimes:
    """All months and days that the question names by the calendar, and the window that it names relative to today."""
    folded = _fold(query)
    days, months, words = [], [], []
    for pattern in (*NAMED_DAYS, *NAMED_MONTHS):
        for match in pattern.finditer(folded):
            year, month, day = _named(match)
            if 1 <= month <= 12 and (day is None or 1 <= day <= 31):
                # A day is of its month as well.
                months.append((year, month))
                days += [(year, month, day)] if day else []
                words.append(query[match.start() : match.end()].strip())
        folded = pattern.sub(lambda found: " " * len(found[0]), folded)
    windows = () if window is None or months else (window.days,)
    if window is not None and not words:
        words.append(window.words)
    return PreferredTimes(tuple(months), tuple(days), windows, tuple(words))


Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date], Days | None], bool]
"""A pattern, what its match means on a day, and whether it needs a verb of the past."""


def _either(*tables: dict[str, int] | dict[str, str]) -> str:
    words = sorted({word for table in tables for word in table}, key=len, reverse=True)
    return "|".join(re.escape(word).replace(r"\-", "[ -]") for word in words)


def _one_day(day: date) -> Days:
    return Days(day, day)


def _number(word: str) -> int:
    return int(word) if word.isdigit() else NUMBERS[word]


# The days of a unit, and how far a day that is some of them ago may be from the exact one.
_LENGTHS = {"day": (1, 0), "week": (7, 3), "month": (30.44, 15), "year": (365.25, 45), "weekend": (0, 0)}


def _ago(match: re.Match[str], today: date) -> Days | None:
    """Days are exact; a week, a month or a year ago is approximate."""
    count, (length, spread) = _number(match["n"]), _LENGTHS[UNITS[match["unit"]]]
    if count > MOST or not length:
        return None
    day = today - count * length * DAY
    return Days(day - spread * DAY, day + spread * DAY)


def _few_ago(match: re.Match[str], today: date) -> Days:
    """From two to seven of them ago."""
    length = _LENGTHS[UNITS[next(filter(None, match.groups()))]][0] * DAY
    return Days(today - 7 * length, today - 2 * length)


def _last_units(match: re.Match[str], today: date) -> Days | None:
    """The last N days, weeks, months or years, until today."""
    count, (length, _) = _number(match["n"]), _LENGTHS[UNITS[match["unit"]]]
    return Days(today - count * length * DAY, today) if length and count <= MOST else None


def _last_unit(match: re.Match[str], today: date) -> Days | None:
    before = {"month": today.replace(day=1) - DAY, "year": date(today.year - 1, 1, 1)}
    return _unit_of(before.get(unit := UNITS[match["unit"]], today - WEEK), unit)


def _unit_of(day: date, unit: str) -> Days | None:
    """The week, weekend, month or year that a day is in."""
    monday = day - day.weekday() * DAY
    match unit:
        case "week":
            return Days(monday, monday + 6 * DAY)
        case "weekend":
            return Days(monday + 5 * DAY, monday + 6 * DAY)
        case "month":
            return _whole_month(day.year, day.month)
        case "year":
            return Days(date(day.year, 1, 1), date(day.year, 12, 31))
        case _:
            return None


def _weekend(_: re.Match[str], today: date) -> Days:
    """The latest one that has begun."""
    saturday = today - (today.weekday() - 5) % 7 * DAY
    return Days(saturday, saturday + DAY)


def _weekday(match: re.Match[str], today: date) -> Days:
    """The latest one before today."""
    back = (today.weekday() - WEEKDAYS[match["weekday"]]) % 7 or 7
    return _one_day(today - back * DAY)


def _named(match: re.Match[str]) -> tuple[int | None, int, int | None]:
    """The year, if there is one, the month, and the day, if there is one."""
    parts = match.groupdict()
    month = MONTHS[parts["month"]] if parts.get("month") else _numeral(parts["m"])
    year, day = parts.get("year"), parts.get("day")
    number = None if day is None else ORDINAL_DAYS.get(day) or _numeral(day)
    return int(year) if year else None, month, number


def _numeral(word: str) -> int:
    """Of digits, or of Chinese numerals up to ninety-nine."""
    if word.isdigit():
        return int(word)
    tens, ten, ones = word.rpartition("十")
    digits = " 一二三四五六七八九"
    return (digits.index(tens or "一") * 10 if ten else 0) + (digits.index(ones) if ones else 0)


def _month(match: re.Match[str], today: date) -> Days:
    """The latest one that has begun, unless a year is named."""
    year, month, _ = _named(match)
    return _whole_month(year or today.year - (month > today.month), month)


def _months(match: re.Match[str], today: date) -> Days | None:
    """From the first of two to the end of the second, which is the latest one that has begun."""
    first, last = MONTHS[match["month"]], MONTHS[match["until"]]
    year = int(match["year"]) if match["year"] else today.year - (last > today.month)
    return Days(date(year - (first > last), first, 1), _whole_month(year, last).last)


def _whole_month(year: int, month: int) -> Days:
    following = date(year + month // 12, month % 12 + 1, 1)
    return Days(date(year, month, 1), following - DAY)


def _week_of_month(match: re.Match[str], today: date) -> Days:
    days = _month(match, today)
    if match["which"] in ("last", "letzten", "letzte", "ultima", "derniere"):
        return Days(days.last - 6 * DAY, days.last)
    first = days.first + next(n for n, words in enumerate(ORDINAL_WEEKS) if match["which"] in words) * WEEK
    return Days(first, first + 6 * DAY)


def _calendar_day(match: re.Match[str], today: date) -> Days | None:
    """The latest one that has begun, unless a year is named; for 29 February, the day before if there is none."""
    year, month, day = _named(match)
    try:
        found = date(year or today.year, month, day or 0)
    except ValueError:
        return None
    if not year and found > today:
        found = date(today.year - 1, month, 28 if (month, day) == (2, 29) else found.day)
    return _one_day(found)


def _season(match: re.Match[str], today: date) -> Days | None:
    month = SEASONS[match["season"]]
    year = int(match["year"]) if match["year"] else today.year
    first, last = _season_of(year, month)
    if not match["year"] and (first > today or (match["last"] and last >= today)):
        first, last = _season_of(year - 1, month)
    return Days(first, last)


def _season_of(year: int, month: int) -> Days:
    return Days(date(year, month, 1), _whole_month(year + (month == 12), (month + 1) % 12 + 1).last)


def _feast(match: re.Match[str], today: date) -> Days | None:
    """The latest one that has begun; with "last year", that year's; or the week before it."""
    name = FEASTS[re.sub(" ", "-", match["feast"])]
    year = int(match["year"]) if match["year"] else today.year - bool(match["lastyear"])
    days = _feast_of(name, year)
    if days.first > today and not match["year"]:
        days = _feast_of(name, year - 1)
    if match["weekbefore"]:
        return Days(days.first - WEEK + 2 * DAY if name == "easter" else days.first - WEEK, days.first + 2 * DAY)
    return days


def _feast_of(name: str, year: int) -> Days:
    match name:
        case "christmas":
            return Days(date(year, 12, 24), date(year, 12, 26))
        case "new year":
            return Days(date(year - 1, 12, 31), date(year, 1, 1))
        case _:
            sunday = _easter(year)
            return Days(sunday - 2 * DAY, sunday + DAY)


def _easter(year: int) -> date:
    """Source: the anonymous Gregorian algorithm (J. Meeus, Astronomical Algorithms, chapter 8)."""
    a, (b, c) = year % 19, divmod(year, 100)
    (d, e), f = divmod(b, 4), (b + 8) // 25
    h = (19 * a + b - d - (b - f + 1) // 3 + 15) % 30
    i, k = divmod(c, 4)
    weekday = (32 + 2 * e + 2 * i - h - k) % 7
    m = (a + 11 * h + 22 * weekday) // 451
    month, day = divmod(h + weekday - 7 * m + 114, 31)
    return date(year, month, day + 1)


_N = rf"(?P<n>\d{{1,3}}|{_either(NUMBERS)})(?: of| de)?"
_UNIT = rf"(?P<unit>{_either(UNITS)})"
_NAMED_YEAR = r"(?:(?:-|,? (?:(?:of|de|del|in|di|do|van) )?)(?P<year>(?:19|20)\d\d))"
_YEAR = f"{_NAMED_YEAR}?"
_MONTH = rf"(?P<month>{_either(MONTHS)})"
_DATES = (
    r"(?P<year>(?:19|20)\d\d)[-/](?P<m>\d\d)[-/](?P<day>\d\d)",
    r"(?P<day>\d{1,2})\. ?(?P<m>\d{1,2})\. ?(?P<year>(?:19|20)\d\d)(?!\.\d)",
    rf"(?P<day>\d{{1,2}}|{_either(ORDINAL_DAYS)})(?:st|nd|rd|th|er|[.ºª°])?(?: of| del?| di)?[ .-]{_MONTH}"
    rf"{_YEAR}(?! (?:be|have|not|need|come|go|also)(?!\w))",
    rf"{_MONTH} (?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?{_YEAR}(?!\d)",
)
# "5月2号": other words follow without a space.
_CJK = "[一二三四五六七八九十]"
_CJK_MONTH = rf"(?<!{_CJK})(?<!\d)(?:(?P<year>(?:19|20)\d\d) ?[年년] ?)?(?P<m>\d{{1,2}}|{_CJK}{{1,2}}) ?[月월]"
_CJK_DAY = rf"{_CJK_MONTH} ?(?P<day>\d{{1,2}}|{_CJK}{{1,3}}) ?[日号號일]"
_LAST = r"(?:last|past|letzten?|letztes|letzter|vergangenen?|vergangenes|vorigen?|voriges)"
_BEHIND = r"(?:pasad[oa]|dernier|derniere|passee?)"
_WHICH = "|".join(
    [*(word for words in ORDINAL_WEEKS for word in words), "last", "letzten", "letzte", "ultima", "derniere"]
)


def _rule(pattern: str, days: Callable[[re.Match[str], date], Days | None], *, needs_past: bool = False) -> Rule:
    return re.compile(rf"(?<!\w)(?:{pattern})(?:['\u2019]s)?(?!\w)"), days, needs_past


# The first match counts, so more specific patterns come first.
RULES = (
    *(_rule(rf"(?:on |am |el |le )?{pattern}", _calendar_day) for pattern in _DATES[:2]),
    _rule(
        r"(?:over |at |on |in |an |zu |en |a )?"
        r"(?P<weekbefore>(?:the )?week before |woche vor |semana antes de |semaine avant )?"
        rf"(?:la |le )?(?P<feast>{_either(FEASTS)})"
        rf"(?P<lastyear> last year| letztes jahr| del ano pasado| de l'annee derniere)?{_YEAR}",
        _feast,
        needs_past=True,
    ),
    _rule(
        rf"(?:in |during )?(?:the |der |la )?(?P<which>{_WHICH}) (?:week|woche|semana|semaine)"
        rf"(?: of| im| in| de|) {_MONTH}{_YEAR}",
        _week_of_month,
        needs_past=True,
    ),
    *(
        _rule(rf"(?:on |am |el |le |il |op |em |no )?(?:the )?{day}", _calendar_day, needs_past=True)
        for day in _DATES[2:]
    ),
    (re.compile(_CJK_DAY), _calendar_day, True),
    _rule(
        r"(?:(?:(?:in|during|over) )?(?:the )?(?:last|past)|(?:in den |die )?(?:letzten|vergangenen)"
        rf"|(?:en )?(?:los |las )?(?:ultimos|ultimas)) {_N} {_UNIT}",
        _last_units,
    ),
    _rule(rf"(?:(?:dans|ces|les) )*{_N} (?:derniers|dernieres) {_UNIT}", _last_units),
    _rule(rf"(?:about |around )?(?:a )?{_N} {_UNIT} ago", _ago),
    _rule(
        r"(?:a few|some) (?P<en>days|weeks|months|years) ago"
        r"|vor (?:ein paar|einigen) (?P<de>tagen|wochen|monaten|jahren)"
        r"|hace (?:unos|unas|algunos|algunas) (?P<es>dias|semanas|meses|anos)"
        r"|il y a quelques (?P<fr>jours|semaines|mois|ans)",
        _few_ago,
    ),
    _rule(
        rf"(?:vor (?:etwa |rund |ungefahr )?|hace (?:unos |unas )?|il y a (?:environ )?){_N} {_UNIT}",
        _ago,
    ),
    _rule(
        r"the day before yesterday|day before yesterday|vorgestern|anteayer|antier|avant-hier",
        lambda _, today: _one_day(today - 2 * DAY),
    ),
    _rule(
        r"yesterday|last night|gestern|ayer|anoche|hier soir|hier(?! (?:in|im|ist|war|sind|noch|mit|bei))",
        lambda _, today: _one_day(today - DAY),
    ),
    _rule(
        r"today|this (?:morning|afternoon)|heute(?: morgen| fruh| mittag)?|hoy|aujourd'hui|ce matin",
        lambda _, today: _one_day(today),
        needs_past=True,
    ),
    _rule(
        r"(?:(?:at|on|over) the|this) weekend|(?:am|dieses) wochenende|(?:el|este) fin de semana|(?:ce|le) week-end",
        _weekend,
        needs_past=True,
    ),
    _rule(
        rf"(?:(?:in|im|during|at|am) )?(?:(?:the|der|den|die|das) )?"
        rf"(?:(?:beginning|start|middle|end) of )?{_LAST} {_UNIT}",
        _last_unit,
    ),
    _rule(rf"(?:la |el |le |l')?{_UNIT} {_BEHIND}", _last_unit),
    _rule(rf"(?:on |am )?(?:the |den )?{_LAST} (?P<weekday>{_either(WEEKDAYS)})", _weekday),
    _rule(rf"(?:el |le )?(?P<weekday>{_either(WEEKDAYS)}) {_BEHIND}", _weekday),
    _rule(rf"(?:on|am|el|le) (?P<weekday>{_either(WEEKDAYS)})", _weekday, needs_past=True),
    _rule(
        rf"(?:this|diese|diesen|dieses|esta|este|cette|ce) {_UNIT}",
        lambda match, today: _unit_of(today, UNITS[match["unit"]]),
        needs_past=True,
    ),
    _rule(rf"(?P<last>{_LAST} )(?P<season>{_either(SEASONS)}){_YEAR}", _season),
    _rule(rf"(?:el |la |le |l')?(?P<season>{_either(SEASONS)})(?P<last> {_BEHIND})(?P<year>)", _season),
    _rule(
        rf"(?P<last>)(?:in|im|en|au|over|during)(?: the| el| la| l'|) ?(?P<season>{_either(SEASONS)}){_YEAR}",
        _season,
        needs_past=True,
    ),
    _rule(
        rf"(?:(?:since|seit|desde|depuis) )(?:(?:last|letztem|letzten|el|le) )?(?P<weekday>{_either(WEEKDAYS)})",
        lambda match, today: Days(_weekday(match, today).first, today),
    ),
    _rule(
        rf"(?:since|seit|desde|depuis) {_MONTH}{_YEAR}", lambda match, today: Days(_month(match, today).first, today)
    ),
    _rule(
        rf"(?:between|zwischen|entre) {_MONTH} (?:and|und|y|et) (?P<until>{_either(MONTHS)}){_YEAR}",
        _months,
        needs_past=True,
    ),
    _rule(
        rf"(?:(?:in|im|en|{_LAST}) )?(?:(?:early|mid|late|anfang|mitte|ende) ){_MONTH}{_YEAR}", _month, needs_past=True
    ),
    _rule(rf"(?:in|im|en|{_LAST}) {_MONTH}{_YEAR}(?! of)", _month, needs_past=True),
    _rule(
        r"(?:in|im jahr|en) (?P<year>(?:19|20)\d\d)",
        lambda match, _: _unit_of(date(int(match["year"]), 1, 1), "year"),
        needs_past=True,
    ),
)


# Calendar dates in a question, which do not depend on today's date. A month alone counts only after a preposition of
# its language.
NAMED_DAYS = tuple(re.compile(pattern) for pattern in (*(rf"(?<!\w)(?:{day})(?!\w)" for day in _DATES), _CJK_DAY))
NAMED_MONTHS = (
    re.compile(rf"(?<!\w){_MONTH}{_NAMED_YEAR}(?!\w)"),
    *(
        re.compile(rf"(?<!\w)(?:{before}) (?P<month>{'|'.join(names.replace('-', '').split())})(?!\w)")
        for names, before in MONTH_NAMES
    ),
    re.compile(_CJK_MONTH),
)
