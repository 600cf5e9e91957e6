"""Notes in any encoding, and Takeout's activity list as a web page.

Reads a note in any encoding, and the title and date from its front matter or its name.
"""

import codecs
import html
import re
import tomllib
import unicodedata
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import IO, Any

import yaml

from core.encodings import decoded
from core.text import gettext_noop as _
from core.text import sentence_of
from imports.reading.files import Files
from imports.reading.items import Skipped, UnreadableExport
from imports.reading.json_streams import compact, joined, line_of, object_of, objects_of, text_of

# --- Reads Takeout's activity list as a web page, Google's default format: its cards as records ---
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
_CHUNK = 1 << 20
_LONGEST_CARD = 32 << 20
# The beginning of a card has at most as many characters.
_LONGEST_MARK = 200
# The maximum number of lines before the date: a question may have very many lines.
_MOST_LINES = 5_000

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
_LONGEST_DATE = 80
NOON = 12
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
        data = stream.read(_CHUNK)
        held += decoder.decode(data, final=not data)
        # A long card is searched once, and not again with each chunk of it.
        for found in _CARD.finditer(held, searched):
            if start >= 0:
                yield held[start : found.start()]
            start = found.start()
        if not data:
            break
        # A beginning may be split between two chunks.
        cut = start if start >= 0 and len(held) - start < _LONGEST_CARD else max(0, len(held) - _LONGEST_MARK)
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
        if at is not None or len(lines) == _MOST_LINES:
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
    if len(text) > _LONGEST_DATE:
        return None
    # The last one, because dates may contain points too.
    times = list(_TIME.finditer(_OFFSET.sub("", text)))
    day = _day_in(text[: times[-1].start()]) if times else None
    if day is None:
        return _iso(text)
    time = times[-1]
    hour = int(time[1])
    if _AFTERNOON.search(text) and hour < NOON:
        hour += NOON
    elif _MORNING.search(text) and hour == NOON:
        hour = 0
    try:
        return datetime(*day, hour, int(time[2]), int(time[3] or 0), tzinfo=_zone_in(text)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _iso(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text) if "T" in text else None
    except ValueError:
        return None
    return at if at is None or at.tzinfo else at.replace(tzinfo=UTC)


def _day_in(text: str) -> tuple[int, int, int] | None:
    if found := _CARD_YEAR_FIRST.search(text):
        return int(found[1]), int(found[2]), int(found[3])
    if found := _CARD_YEAR_LAST.search(text):
        first, second = int(found[1]), int(found[3])
        # `9/30/2025` is American; in all other formats the day comes first.
        return (int(found[4]), first, second) if second > MONTHS else (int(found[4]), second, first)
    year = _CARD_YEAR.search(text)
    day = _CARD_DAY.search(text)
    plain = "".join(each for each in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(each))
    words = _WORD.findall(plain)
    month = next((n for word in words if (n := _MONTH_OF.get(word[:4]) or _MONTH_OF.get(word[:3]))), None)
    return (int(year[1]), month, int(day[1])) if year and day and month else None


def unknown_zone(text: str) -> str:
    """The name of a zone in a date, if it is not known: its times are read as UTC."""
    if _OFFSET.search(text):
        return ""
    names = _ZONE.findall(text)
    return "" if not names or any(name in _HOURS for name in names) or names[-1] in ("AM", "PM") else names[-1]


def month_named(word: str) -> int | None:
    """The month of a name in any of the languages, without accents and in lower case."""
    return _MONTH_OF.get(word[:4]) or _MONTH_OF.get(word[:3])


def _zone_in(text: str) -> timezone:
    if found := _OFFSET.search(text):
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        return timezone(timedelta(minutes=minutes if found[1] == "+" else -minutes))
    # Chinese Standard Time has the letters of America's Central one.
    if "年" in text and "CST" in text:
        return timezone(timedelta(hours=8))
    names = [name for name in _ZONE.findall(text) if name in _HOURS]
    return timezone(timedelta(hours=_HOURS[names[-1]] if names else 0))


# --- Reads a note in any encoding, and the title and date from its front matter or its name ---

LONGEST_DATE = 64
# Lists of tags and the like.
MOST_BRACKETS = 100
LONGEST_NOTE = 32 * 1024 * 1024
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?P<head>.{0,65536}?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#[ \t]+(?P<title>\S.*)$", re.MULTILINE)
# Also as Logseq names its days: `2026_03_14`, `20260314`.
_DAY = re.compile(r"\d{4}([-_]?)\d{2}\1\d{2}(?!\d)")
# Keys are compared without case, spaces and signs.
_TITLE_KEYS = ("title", "name", "titel", "titulo")
_DATE_KEYS = (
    "created", "createdat", "date", "datecreated", "createddate", "createdtime", "creationdate", "createdon", "ctime",
    "published", "publishdate", "datum", "fecha", "day", "updated", "updatedat", "dateupdated", "modified",
    "modifiedat", "datemodified", "lastmodified", "lastmod", "lastupdated", "mtime",
)  # fmt: skip
_LONGEST_HEAD = 65_536
_TOML_MATTER = re.compile(r"\+\+\+[ \t]*\n(?P<head>.{0,65536}?\n)\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL)
_BEGINS = re.compile(r"(?:---|\+\+\+)\n[\w][\w -]{0,60}[:=]")
_PAIR = re.compile(r"(?P<key>[^\W\d_][\w .-]{0,60}?)[ \t]{0,9}[:=](?:[ \t]|$)(?P<value>[^\n]{0,4000})")
_LIST_ITEM = re.compile(r"[ \t]{0,20}-[ \t]{1,9}([^\n]{0,4000})")
_BEFORE_OFFSET = re.compile(r"[ \t]([+-]\d\d:?\d\d)\Z")
_YEAR_FIRST = re.compile(r"(\d{4})[-/. ]{1,2}(\d{1,2})[-/. ]{1,2}(\d{1,2})(?!\d)")
_YEAR_LAST = re.compile(r"(\d{1,2})[./-] ?(\d{1,2})[./-] ?(\d{4})(?!\d)")
_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
_DAY_NUMBER = re.compile(r"(?<!\d)(\d{1,2})(?!\d|:)")
_WORDS = re.compile(r"[^\W\d_]{3,}")
_EARLIEST = date(1900, 1, 1)

# Logseq's page properties are the first lines of a page.
_LOGSEQ_LINE = re.compile(r"(?:- )?(?P<key>[^\W\d_][\w./-]{0,60})::(?:[ \t](?P<value>[^\n]{0,4000}))?(?:\n|\Z)")
_LOGSEQ_MATTER = re.compile(rf"(?:{_LOGSEQ_LINE.pattern.replace('?P<key>', '').replace('?P<value>', '')})+")
# What Excalidraw's plugin writes around the texts of a drawing, and its data.
_OF_EXCALIDRAW = re.compile(r"==⚠|#{1,2} (?:Text Elements|Drawing|Excalidraw Data)\s*$|%%\s*$")
_BLOCK_ID = re.compile(r" \^[\w-]{1,12}$")
_PACKED = re.compile(r"^```(?:compressed-)?json\n.*?(?:^```|\Z)", re.MULTILINE | re.DOTALL)
# In one line of TOML.
MOST_DOTS = 200


def note_text(files: Files, name: str) -> str | Skipped:
    """The whole text with plain newlines, or the reason why it is not read."""
    if files.size(name) > LONGEST_NOTE:
        return Skipped(where=name, reason=_("this note is too large"))
    try:
        with files.open(name) as stream:
            text = text_of(decoded(stream.read(LONGEST_NOTE))[0])
    except UnreadableExport as error:
        return Skipped(where=name, reason=sentence_of(error))
    return text if text.strip() else Skipped(where=name, reason=_("this note is empty"))


def front_matter(text: str) -> tuple[dict[str, Any], str]:
    """The front matter's values by their keys, and the note without it.

    It is YAML between lines of `---`, or TOML between lines of `+++`, or Logseq's lines of `key:: value`; people and
    programs write them loosely, so what is neither is read line by line. Without an end, its values count and the
    whole text stays.
    """
    found = _FRONT_MATTER.match(text) or _TOML_MATTER.match(text)
    if not found and (found := _LOGSEQ_MATTER.match(text)):
        return {each["key"]: line_of(each["value"]) for each in _LOGSEQ_LINE.finditer(found[0])}, text[found.end() :]
    if not found:
        return _without_end(text), text
    head = found["head"]
    values = _toml(head) if text.startswith("+++") else _yaml(head)
    values = values or _usable(_by_line(head))
    return (values, text[found.end() :]) if values else ({}, text)


def properties_of(values: dict[str, Any], title: str, at: date | datetime | None) -> Iterator[tuple[str, str]]:
    """What a note's head says besides its title and date: aliases, tags, people, numbers, as one line each."""
    for key, value in values.items():
        text = ", ".join(map(_line_of_value, value)) if isinstance(value, list) else _line_of_value(value)
        is_date = _plain_key(key) in _DATE_KEYS and at is not None and _when(_first(value)) == at
        if text and not is_date and not (_plain_key(key) in _TITLE_KEYS and text == title):
            yield line_of(str(key)), text


def _line_of_value(value: Any) -> str:
    if isinstance(value, dict | list):
        return compact(value)
    return line_of(value if isinstance(value, str) else "" if value is None else str(value))


def without_drawing(text: str) -> str:
    """A note of Excalidraw: its own words and those in the drawing, without the packed data."""
    beginning, mark, drawn = text.partition("# Excalidraw Data")
    texts, _mark, rest = (drawn if mark else text).partition("## Drawing")
    if not mark:
        beginning, texts = "", texts if _mark else _PACKED.sub("", texts + rest)
    lines = [_BLOCK_ID.sub("", line) for line in f"{beginning}\n{texts}".splitlines()]
    return "\n".join(line for line in lines if not _OF_EXCALIDRAW.match(line)).strip()


def texts_of_canvas(value: Any) -> str:
    """The texts of a canvas of Obsidian, or of a drawing of Excalidraw, with the names of what is on it."""
    fields = object_of(value)
    found = [
        text_of(each.get(name)).strip()
        for each in [
            *objects_of(fields.get("nodes")),
            *objects_of(fields.get("elements")),
            *objects_of(fields.get("edges")),
        ]
        for name in ("text", "label", "file", "url")
    ]
    return joined(found)


def _without_end(text: str) -> dict[str, Any]:
    """One line like `title: …` below a rule may be the text itself; several with a date are front matter."""
    if not _BEGINS.match(text):
        return {}
    values = _by_line(text[4 : 4 + _LONGEST_HEAD].partition("\n\n")[0])
    plain = _by_plain_key(values)
    return values if any(_when(_first(plain.get(key))) for key in _DATE_KEYS) and len(values) > 1 else {}


def _usable(values: dict[str, Any]) -> dict[str, Any]:
    """Lines that give neither a title nor a date stay part of the text."""
    plain = _by_plain_key(values)
    has_title = any(
        (title := line_of(_first(value))) and not (title[0] in "[{" and title[-1] not in "]}")
        for key, value in plain.items()
        if key in _TITLE_KEYS
    )
    return values if has_title or any(_when(_first(plain.get(key))) for key in _DATE_KEYS) else {}


def _yaml(head: str) -> dict[str, Any]:
    # The library's time grows with the cube of open brackets; a head with so many is read line by line.
    if sum(map(head.count, "[{")) > MOST_BRACKETS:
        return {}
    try:
        # Only texts: an impossible date must not make the rest invalid.
        values = yaml.load(head, yaml.BaseLoader)  # noqa: S506 - this loader makes strings alone
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}
    return {str(key): value for key, value in values.items()} if isinstance(values, dict) else {}


def _toml(head: str) -> dict[str, Any]:
    # The library's time grows with the square of a key's parts; a longer line is read as text.
    if any(line.count(".") > MOST_DOTS for line in head.splitlines()):
        return {}
    try:
        return tomllib.loads(head)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return {}


def _by_line(head: str) -> dict[str, Any]:
    """`key: value` or `key = value`, and the items of a list below a key."""
    values: dict[str, Any] = {}
    last = ""
    for line in head.splitlines():
        if isinstance(values.get(last), list) and (item := _LIST_ITEM.match(line)):
            values[last].append(_unquoted(item[1]))
        elif found := _PAIR.match(line.lstrip("\t")):
            last = found["key"] if found["key"] not in values else f"{found['key']} {len(values)}"
            values[last] = _unquoted(found["value"]) or []
        elif last and line.strip():
            # A line that goes on with the value above it.
            value = values[last]
            values[last] = [*value, line.strip()] if isinstance(value, list) else f"{value} {line.strip()}"
    return values


def _by_plain_key(values: dict[str, Any]) -> dict[str, Any]:
    """The values by keys without case, spaces and signs; the first of those that are then alike."""
    return {_plain_key(key): value for key, value in reversed(values.items())}


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _plain_key(key: str) -> str:
    return "".join(filter(str.isalnum, str(key).casefold()))


def title_of(values: dict[str, Any], body: str, name: str) -> str:
    heading, plain = _HEADING.search(body), _by_plain_key(values)
    stem = name.rpartition("/")[2].rpartition(".")[0].removesuffix(".excalidraw")
    titles = [line_of(_first(plain.get(key))) for key in _TITLE_KEYS]
    titles.append(line_of(heading["title"] if heading else ""))
    # A template's title is filled in later.
    return next((title for title in titles if title and "{{" not in title and "<%" not in title), stem)


def _first(value: Any) -> Any:
    """A value, or the first of a list."""
    return next(iter(value), None) if isinstance(value, list) else value


def date_of(values: dict[str, Any], name: str) -> date | datetime | None:
    plain = _by_plain_key(values)
    for key in _DATE_KEYS:
        if at := _when(_first(plain.get(key))):
            return at
    return day_in(name)


def day_in(name: str) -> date | None:
    """The day at the beginning of a file's name."""
    found = _DAY.match(name.rpartition("/")[2])
    digits = "".join(filter(str.isdigit, found[0])) if found else ""
    day = _when(f"{digits[:4]}-{digits[4:6]}-{digits[6:]}") if digits else None
    return day if isinstance(day, date) else None


def _when(value: Any) -> date | datetime | None:
    """A day or a time as people write them: `2022-05-01`, `05.02.2023`, `2023/02/04`, `March 5, 2023`."""
    if isinstance(value, datetime | date):
        # TOML knows times.
        value = value.isoformat()
    if not isinstance(value, str) or len(value) > LONGEST_DATE:
        return None
    text = value.strip(" \t[]\"'")
    try:
        found = (
            _numbered_day(text) if _DAY.fullmatch(text) else _moment(text) or _numbered_day(text) or _named_day(text)
        )
    except (ValueError, OverflowError):
        return None
    day = found.date() if isinstance(found, datetime) else found
    return found if day and _EARLIEST <= day <= datetime.now(UTC).date() + timedelta(days=1) else None


def _moment(text: str) -> datetime | None:
    # `2023-02-03 04:05:06 +0200`: a space before the offset, which ISO does not know.
    joined = _BEFORE_OFFSET.sub(r"\1", text).removesuffix(" UTC")
    if ":" not in joined:
        return None
    try:
        moment = datetime.fromisoformat(joined)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def _numbered_day(text: str) -> date | None:
    if found := _YEAR_FIRST.match(text):
        return date(int(found[1]), int(found[2]), int(found[3]))
    if found := _YEAR_LAST.match(text):
        first, second, year = int(found[1]), int(found[2]), int(found[3])
        # `9/30/2025` is American; in all other formats the day comes first.
        return date(year, first, second) if second > MONTHS else date(year, second, first)
    return None


def _named_day(text: str) -> date | None:
    plain = "".join(each for each in unicodedata.normalize("NFD", text.casefold()) if not unicodedata.combining(each))
    months = [month for word in _WORDS.findall(plain) if (month := month_named(word))]
    year, day = _YEAR.search(plain), _DAY_NUMBER.search(plain)
    return date(int(year[1]), months[0], int(day[1])) if months and year and day else None
