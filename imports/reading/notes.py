"""Reads a note in any encoding, and the title and date from its front matter or its name."""

import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import yaml

from core.encodings import decoded
from core.text import gettext_noop as _
from core.text import sentence_of
from imports.reading.activity_page import MONTHS, month_in
from imports.reading.files import Files
from imports.reading.items import UnreadableExport
from imports.reading.values import (
    Fields,
    base_name,
    compact,
    joined,
    line_of,
    moment_of,
    object_of,
    objects_of,
    text_of,
)

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
_TOML_MATTER = re.compile(r"\+\+\+[ \t]*\n(?P<head>.{0,65536}?\n)\+\+\+[ \t]*(?:\n|\Z)", re.DOTALL)
_BEGINS = re.compile(r"(?:---|\+\+\+)\n[\w][\w -]{0,60}[:=]")
_PAIR = re.compile(r"(?P<key>[^\W\d_][\w .-]{0,60}?)[ \t]{0,9}[:=](?:[ \t]|$)(?P<value>[^\n]{0,4000})")
_LIST_ITEM = re.compile(r"[ \t]{0,20}-[ \t]{1,9}([^\n]{0,4000})")
_BEFORE_OFFSET = re.compile(r"[ \t]([+-]\d\d:?\d\d)\Z")
_YEAR_FIRST = re.compile(r"(\d{4})[-/. ]{1,2}(\d{1,2})[-/. ]{1,2}(\d{1,2})(?!\d)")
_YEAR_LAST = re.compile(r"(\d{1,2})[./-] ?(\d{1,2})[./-] ?(\d{4})(?!\d)")
_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
_DAY_NUMBER = re.compile(r"(?<!\d)(\d{1,2})(?!\d|:)")

# Logseq's page properties are the first lines of a page.
_LOGSEQ_LINE = re.compile(r"(?:- )?(?P<key>[^\W\d_][\w./-]{0,60})::(?:[ \t](?P<value>[^\n]{0,4000}))?(?:\n|\Z)")
_LOGSEQ_MATTER = re.compile(rf"(?:{_LOGSEQ_LINE.pattern.replace('?P<key>', '').replace('?P<value>', '')})+")
# What Excalidraw's plugin writes around the texts of a drawing, and its data.
_OF_EXCALIDRAW = re.compile(r"==⚠|#{1,2} (?:Text Elements|Drawing|Excalidraw Data)\s*$|%%\s*$")
_BLOCK_ID = re.compile(r" \^[\w-]{1,12}$")
_PACKED = re.compile(r"^```(?:compressed-)?json\n.*?(?:^```|\Z)", re.MULTILINE | re.DOTALL)


def note_text(files: Files, name: str) -> str:
    """The whole text with plain newlines; empty, and reported, if there is nothing to read."""
    text, reason = "", _("this note is too large")
    if files.size(name) <= LONGEST_NOTE:
        reason = _("this note is empty")
        try:
            with files.open(name) as stream:
                text = text_of(decoded(stream.read(LONGEST_NOTE))[0])
        except UnreadableExport as error:
            reason = sentence_of(error)
    if text.strip():
        return text
    files.report(name, reason)
    return ""


def front_matter(text: str) -> tuple[Fields, str]:
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


def properties_of(values: Fields, title: str, at: date | datetime | None) -> Iterator[tuple[str, str]]:
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
        text_of(each, name).strip()
        for each in [
            *objects_of(fields, "nodes"),
            *objects_of(fields, "elements"),
            *objects_of(fields, "edges"),
        ]
        for name in ("text", "label", "file", "url")
    ]
    return joined(found)


def _without_end(text: str) -> Fields:
    """One line like `title: …` below a rule may be the text itself; several with a date are front matter."""
    if not _BEGINS.match(text):
        return {}
    values = _by_line(text[4 : 4 + 65_536].partition("\n\n")[0])
    plain = _by_plain_key(values)
    return values if any(_when(_first(plain.get(key))) for key in _DATE_KEYS) and len(values) > 1 else {}


def _usable(values: Fields) -> Fields:
    """Lines that give neither a title nor a date stay part of the text."""
    plain = _by_plain_key(values)
    has_title = any(
        (title := line_of(_first(value))) and not (title[0] in "[{" and title[-1] not in "]}")
        for key, value in plain.items()
        if key in _TITLE_KEYS
    )
    return values if has_title or any(_when(_first(plain.get(key))) for key in _DATE_KEYS) else {}


def _yaml(head: str) -> Fields:
    # The library's time grows with the cube of open brackets; a head with so many is read line by line.
    if sum(map(head.count, "[{")) > 100:
        return {}
    try:
        # Only texts: an impossible date must not make the rest invalid.
        values = yaml.load(head, yaml.BaseLoader)  # noqa: S506 - this loader makes strings alone
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}
    return {str(key): value for key, value in values.items()} if isinstance(values, dict) else {}


def _toml(head: str) -> Fields:
    # The library's time grows with the square of a key's parts; a longer line is read as text.
    if any(line.count(".") > 200 for line in head.splitlines()):
        return {}
    try:
        return tomllib.loads(head)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return {}


def _by_line(head: str) -> Fields:
    """`key: value` or `key = value`, and the items of a list below a key."""
    values: Fields = {}
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


def _by_plain_key(values: Fields) -> Fields:
    """The values by keys without case, spaces and signs; the first of those that are then alike."""
    return {_plain_key(key): value for key, value in reversed(values.items())}


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _plain_key(key: str) -> str:
    return "".join(filter(str.isalnum, str(key).casefold()))


def title_of(values: Fields, body: str, name: str) -> str:
    heading, plain = _HEADING.search(body), _by_plain_key(values)
    stem = base_name(name).rpartition(".")[0].removesuffix(".excalidraw")
    titles = [line_of(_first(plain.get(key))) for key in _TITLE_KEYS]
    titles.append(line_of(heading["title"] if heading else ""))
    # A template's title is filled in later.
    return next((title for title in titles if title and "{{" not in title and "<%" not in title), stem)


def _first(value: Any) -> Any:
    """A value, or the first of a list."""
    return next(iter(value), None) if isinstance(value, list) else value


def date_of(values: Fields, name: str) -> date | datetime | None:
    plain = _by_plain_key(values)
    for key in _DATE_KEYS:
        if at := _when(_first(plain.get(key))):
            return at
    return day_in(name)


def day_in(name: str) -> date | None:
    """The day at the beginning of a file's name."""
    found = _DAY.match(base_name(name))
    digits = "".join(filter(str.isdigit, found[0])) if found else ""
    day = _when(f"{digits[:4]}-{digits[4:6]}-{digits[6:]}") if digits else None
    return day if isinstance(day, date) else None


def _when(value: Any) -> date | datetime | None:
    """A day or a time as people write them: `2022-05-01`, `05.02.2023`, `2023/02/04`, `March 5, 2023`."""
    if isinstance(value, datetime | date):
        # TOML knows times.
        value = value.isoformat()
    if not isinstance(value, str) or len(value) > 64:
        return None
    text = value.strip(" \t[]\"'")
    try:
        found = _day_of(text) if _DAY.fullmatch(text) else _moment(text) or _day_of(text)
    except (ValueError, OverflowError):
        return None
    day = found.date() if isinstance(found, datetime) else found
    return found if day and date(1900, 1, 1) <= day <= datetime.now(UTC).date() + timedelta(days=1) else None


def _moment(text: str) -> datetime | None:
    # `2023-02-03 04:05:06 +0200`: a space before the offset, which ISO does not know.
    return moment_of(_BEFORE_OFFSET.sub(r"\1", text)) if ":" in text else None


def _day_of(text: str) -> date | None:
    if found := _YEAR_FIRST.match(text):
        return date(int(found[1]), int(found[2]), int(found[3]))
    if found := _YEAR_LAST.match(text):
        first, second, year = int(found[1]), int(found[2]), int(found[3])
        # `9/30/2025` is American; in all other formats the day comes first.
        return date(year, first, second) if second > MONTHS else date(year, second, first)
    named, year_found, day = month_in(text), _YEAR.search(text), _DAY_NUMBER.search(text)
    return date(int(year_found[1]), named, int(day[1])) if named and year_found and day else None
