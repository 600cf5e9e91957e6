"""Reads Takeout's activity list as a web page, Google's default format: its cards as records."""

import codecs
import html
import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import IO, Any

from imports.reading.values import moment_of

# A card is `div.outer-cell` with the product in its header, and a first `content-cell` with the verb and the question,
# a line break, the date in the account's language, a line break, and the answer.

_CARD = re.compile(r'<div\b[^<>]{0,40}\bclass\s*=\s*["\']?outer-cell\b', re.IGNORECASE)
_CELL = re.compile(r'<div\b[^<>]{0,40}\bclass\s*=\s*["\']?content-cell\b[^<>]{0,300}>', re.IGNORECASE)
# Where a line ends: line breaks are removed, the beginning of a block stays.
_LINE_END = re.compile(r"<br\b[^<>]{0,40}>|(?=<(?:p|div|h[1-6]|ul|ol|pre|table|blockquote)\b)", re.IGNORECASE)
_FILE = re.compile(r"<(?:a|img)\b[^<>]{0,2000}?\b(?:href|src)\s*=\s*(?:\"([^\"<>]*)\"|'([^'<>]*)')", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
# `Attached 2 files.`, then the name of each, of which the links tell; `1 generated image.`
_ATTACHED = re.compile(r"-\s.{0,9}<a\b.*", re.IGNORECASE | re.DOTALL)
_GENERATED = re.compile(r"\d{1,3} generated images?\b.{0,5}", re.IGNORECASE)
# The beginning of a card has at most as many characters.
_LONGEST_MARK = 200

_TIME = re.compile(r"(?<!\d)(\d{1,2})[:.h](\d{2})(?:[:.](\d{2}))?(?!\d)")
_CARD_YEAR_FIRST = re.compile(r"(?<!\d)(20\d\d)\D{1,3}(\d{1,2})\D{1,3}(\d{1,2})(?!\d)")
_CARD_YEAR_LAST = re.compile(r"(?<!\d)(\d{1,2})([./-]) ?(\d{1,2})[./-] ?(20\d\d)(?!\d)")
_CARD_DAY = re.compile(r"(?<!\d)(\d{1,2})(?!\d)")
_CARD_YEAR = re.compile(r"(?<!\d)(20\d\d)(?!\d)")
_WORD = re.compile(r"[^\W\d_]{3,}")
_OFFSET = re.compile(r"(?:GMT|UTC)\s?([+\u2212-])(\d{1,2})(?::?(\d{2}))?")
_ZONE = re.compile(r"\b[A-Z]{2,5}\b")
_AFTERNOON = re.compile(r"\bp\.? ?m\b|下午|午後|오후", re.IGNORECASE)
_MORNING = re.compile(r"\ba\.? ?m\b|上午|午前|오전", re.IGNORECASE)
MONTHS = 12
# By prefixes without accents that no other month of any of these languages shares.
_MONTHS = (
    "jan gen ene янв sty oca",
    "feb fev фев lut sub",
    "mar maa mrt мар",
    "apr avr abr апр kwi nis",
    "may mai mag mei maj мая май",
    "jun juin giu июн cze haz",
    "jul juil lug июл lip tem",
    "aug aou ago авг sie agu",
    "sep set сен wrz eyl",
    "oct okt ott out окт paz eki",
    "nov ноя lis kas",
    "dec dez dic дек gru ara",
)
_MONTH_OF = {name: number for number, names in enumerate(_MONTHS, 1) for name in names.split()}
# Hours from UTC, as zone names are meant in English and in the country's own language.
_HOURS = {
    "UTC": 0, "GMT": 0, "WET": 0, "BST": 1, "WEST": 1, "CET": 1, "MEZ": 1, "HNEC": 1, "CEST": 2, "MESZ": 2, "HAEC": 2,
    "EET": 2, "SAST": 2, "EEST": 3, "MSK": 3, "TRT": 3, "EAT": 3, "GST": 4, "PKT": 5, "IST": 5.5, "WIB": 7, "ICT": 7,
    "HKT": 8, "SGT": 8, "PHT": 8, "AWST": 8, "JST": 9, "KST": 9, "ACST": 9.5, "AEST": 10, "AEDT": 11, "NZST": 12,
    "NZDT": 13, "NDT": -2.5, "BRT": -3, "ART": -3, "NST": -3.5, "ADT": -3, "AST": -4, "EDT": -4, "EST": -5, "COT": -5,
    "PET": -5, "CDT": -5, "CST": -6, "MDT": -6, "MST": -7, "PDT": -7, "PST": -8, "AKDT": -8, "AKST": -9, "HST": -10,
}  # fmt: skip


def is_activity(beginning: str) -> bool:
    return _CARD.search(beginning) is not None


def cards(stream: IO[bytes]) -> Iterator[dict[str, Any]]:
    """Each card in the form of the list's JSON records; without `time` if the date cannot be read."""
    for card in _pieces(stream):
        cells = list(_CELL.finditer(card))
        if cells:
            end = cells[1].start() if len(cells) > 1 else len(card)
            yield {"header": _text(card[: cells[0].start()]), **_record(card[cells[0].end() : end])}
        else:
            yield {}


def _pieces(stream: IO[bytes]) -> Iterator[str]:
    """From the beginning of each card to that of the next, one at a time."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    held, start, searched = "", -1, 0
    while True:
        data = stream.read(1 << 20)
        held += decoder.decode(data, final=not data)
        # A long card is searched once, and not again with each chunk of it.
        for found in _CARD.finditer(held, searched):
            if start >= 0:
                yield held[start : found.start()]
            start = found.start()
        if not data:
            break
        # A beginning may be split between two chunks.
        cut = start if start >= 0 and len(held) - start < (32 << 20) else max(0, len(held) - _LONGEST_MARK)
        searched = max(len(held) - cut - _LONGEST_MARK, 1 if cut == start else 0)
        held, start = held[cut:], 0 if cut == start else -1
    if start >= 0:
        yield held[start:]


def _record(cell: str) -> dict[str, Any]:
    """The question comes before the date, the answer after it."""
    begins = 0
    lines: list[str] = []
    for found in _LINE_END.finditer(cell):
        line = cell[begins : found.start()]
        at = read_date(_text(line)) if lines else None
        # The maximum number of lines before the date: a question may have very many lines.
        if at is not None or len(lines) == 5_000:
            return _fields(lines, at, cell[found.end() :], cell, _text(line))
        lines.append(line)
        begins = found.end()
    last = _text(cell[begins:])
    at = read_date(last)
    return _fields(lines, at, "", cell, last) if at else _fields([*lines, cell[begins:]], None, "", cell)


def _fields(lines: list[str], at: datetime | None, answer: str, cell: str, date: str = "") -> dict[str, Any]:
    names = [html.unescape(one or other) for one, other in _FILE.findall(cell)]
    return {
        "title": "\n".join(map(_text, _asked(lines))).strip(" \n"),
        "time": at.isoformat() if at else None,
        "unknown_zone": unknown_zone(date) if at else "",
        "safeHtmlItem": [{"html": answer}],
        "subtitles": [{"url": name} for name in names if name and ":" not in name[:8]],
    }


def _asked(lines: list[str]) -> list[str]:
    """The lines without those about files."""
    asked: list[str] = []
    is_among_files = False
    for line in lines:
        is_file = _ATTACHED.fullmatch(html.unescape(line).strip()) is not None
        if is_file and not is_among_files and len(asked) > 1:
            # In any language the line contains the number of files.
            asked.pop()
        is_among_files = is_file
        if not is_file and not (asked and _GENERATED.fullmatch(line.strip())):
            asked.append(line)
    return asked


def _text(markup: str) -> str:
    return html.unescape(_TAG.sub("", markup)).strip(" \t\r\n")


def read_date(text: str) -> datetime | None:
    """A day with a time, as Google writes it in many languages: `Sep 3, 2025, 9:15:00\u202fAM CEST`."""
    if len(text) > 80:
        return None
    # The last one, because dates may contain points too.
    times = list(_TIME.finditer(_OFFSET.sub("", text)))
    day = _day_in(text[: times[-1].start()]) if times else None
    if day is None:
        return moment_of(text) if "T" in text else None
    time = times[-1]
    hour = int(time[1])
    if _AFTERNOON.search(text) and hour < 12:
        hour += 12
    elif _MORNING.search(text) and hour == 12:
        hour = 0
    try:
        return datetime(*day, hour, int(time[2]), int(time[3] or 0), tzinfo=_zone_in(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _day_in(text: str) -> tuple[int, int, int] | None:
    if found := _CARD_YEAR_FIRST.search(text):
        return int(found[1]), int(found[2]), int(found[3])
    if found := _CARD_YEAR_LAST.search(text):
        first, second = int(found[1]), int(found[3])
        # `9/30/2025` is American; in all other formats the day comes first.
        return (int(found[4]), first, second) if second > MONTHS else (int(found[4]), second, first)
    year = _CARD_YEAR.search(text)
    day = _CARD_DAY.search(text)
    month = month_in(text)
    return (int(year[1]), month, int(day[1])) if year and day and month else None


def unknown_zone(text: str) -> str:
    """The name of a zone in a date, if it is not known: its times are read as UTC."""
    if _OFFSET.search(text):
        return ""
    names = _ZONE.findall(text)
    return "" if not names or any(name in _HOURS for name in names) or names[-1] in ("AM", "PM") else names[-1]


def month_in(text: str) -> int | None:
    """The first month that a text names in any of the languages."""
    plain = "".join(each for each in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(each))
    named = (_MONTH_OF.get(word[:4]) or _MONTH_OF.get(word[:3]) for word in _WORD.findall(plain))
    return next(filter(None, named), None)


def _zone_in(text: str) -> timezone:
    if found := _OFFSET.search(text):
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        return timezone(timedelta(minutes=minutes if found[1] == "+" else -minutes))
    # Chinese Standard Time has the letters of America's Central one.
    if "年" in text and "CST" in text:
        return timezone(timedelta(hours=8))
    names = [name for name in _ZONE.findall(text) if name in _HOURS]
    return timezone(timedelta(hours=_HOURS[names[-1]] if names else 0))
