"""Reads a note in any encoding, and the title and date from its front matter or its name."""

import re
import tomllib
import unicodedata
from datetime import UTC, date, datetime, timedelta
from typing import Any

import yaml
from charset_normalizer import from_bytes

from imports.reading.activity_html import MONTHS, month_named
from imports.reading.files import Files, encoding_of
from imports.reading.items import Skipped, UnreadableExport
from imports.reading.values import line_of, text_of

LONGEST_DATE = 64
# Lists of tags and the like.
MOST_BRACKETS = 100
LONGEST_NOTE = 32 * 1024 * 1024
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?P<head>.{0,65536}?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#[ \t]+(?P<title>\S.*)$", re.MULTILINE)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)")
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

# In one line of TOML.
MOST_DOTS = 200


def note_text(files: Files, name: str) -> str | Skipped:
    """The whole text with plain newlines, or the reason why it is not read."""
    if files.size(name) > LONGEST_NOTE:
        return Skipped(where=name, reason="this note is too large")
    try:
        with files.open(name) as stream:
            text = _decoded(stream.read(LONGEST_NOTE))
    except UnreadableExport as error:
        return Skipped(where=name, reason=str(error))
    text = text_of(text).replace("\r\n", "\n").replace("\r", "\n")
    return text if text.strip() else Skipped(where=name, reason="this note is empty")


def _decoded(raw: bytes) -> str:
    encoding = encoding_of(raw[:4])
    if encoding != "utf-8-sig":
        return raw.decode(encoding, errors="replace")
    text = raw.decode("utf-8-sig", errors="replace")
    bad = text.count("\ufffd")
    if bad <= 1 or sum(char > "\x7f" for char in text) - bad > bad:
        return text
    # The beginning is enough for guessing; Windows' Western encoding is the commonest one of old notes.
    guess = from_bytes(raw[:65536]).best() if bad > _FEW else None
    return raw.decode(guess.encoding if guess else "cp1252", errors="replace")


# Fewer marks than these say nothing about an encoding.
_FEW = 24


def front_matter(text: str) -> tuple[dict[str, Any], str]:
    """The front matter's values by plain keys, and the note without it.

    It is YAML between lines of `---`, or TOML between lines of `+++`; people and programs write both loosely, so what
    is neither is read line by line. Without an end, its values count and the whole text stays.
    """
    found = _FRONT_MATTER.match(text) or _TOML_MATTER.match(text)
    if not found:
        return _without_end(text), text
    head = found["head"]
    values = _toml(head) if text.startswith("+++") else _yaml(head)
    values = {_plain_key(key): value for key, value in values.items()} or _usable(_by_line(head))
    return (values, text[found.end() :]) if values else ({}, text)


def _without_end(text: str) -> dict[str, Any]:
    """One line like `title: …` below a rule may be the text itself; several with a date are front matter."""
    if not _BEGINS.match(text):
        return {}
    values = _by_line(text[4 : 4 + _LONGEST_HEAD].partition("\n\n")[0])
    return values if any(_when(_first(values.get(key))) for key in _DATE_KEYS) and len(values) > 1 else {}


def _usable(values: dict[str, Any]) -> dict[str, Any]:
    """Lines that give neither a title nor a date stay part of the text."""
    has_title = any(
        (title := line_of(_first(values.get(key)))) and not (title[0] in "[{" and title[-1] not in "]}")
        for key in _TITLE_KEYS
    )
    return values if has_title or any(_when(_first(values.get(key))) for key in _DATE_KEYS) else {}


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
        if item := _LIST_ITEM.match(line):
            if isinstance(values.get(last), list):
                values[last].append(_unquoted(item[1]))
        elif found := _PAIR.match(line):
            last = _plain_key(found["key"])
            value = _unquoted(found["value"])
            values.setdefault(last, value or [])
    return values


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _plain_key(key: str) -> str:
    return "".join(filter(str.isalnum, str(key).casefold()))


def title_of(values: dict[str, Any], body: str, name: str) -> str:
    heading = _HEADING.search(body)
    stem = name.rpartition("/")[2].rpartition(".")[0]
    titles = (line_of(_first(values.get(key))) for key in _TITLE_KEYS)
    return next(filter(None, titles), "") or line_of(heading["title"] if heading else "") or stem


def _first(value: Any) -> Any:
    """A value, or the first of a list."""
    return next(iter(value), None) if isinstance(value, list) else value


def date_of(values: dict[str, Any], name: str) -> date | datetime | None:
    for key in _DATE_KEYS:
        if at := _when(_first(values.get(key))):
            return at
    return day_in(name)


def day_in(name: str) -> date | None:
    """The day at the beginning of a file's name."""
    found = _DAY.match(name.rpartition("/")[2])
    day = _when(found[0]) if found else None
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
