"""Reads a note in any encoding, and the title and date from its front matter or its name."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import yaml
from charset_normalizer import from_bytes

from imports.reading.files import Files
from imports.reading.items import Skipped, UnreadableExport
from imports.reading.values import line_of, text_of

LONGEST_DATE = 64
LONGEST_NOTE = 32 * 1024 * 1024
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?P<head>.{0,65536}?\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#[ \t]+(?P<title>\S.*)$", re.MULTILINE)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)")
_DATE_KEYS = ("created", "date", "updated", "modified")
_EARLIEST = date(1900, 1, 1)


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
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", errors="replace")
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
    """The front matter's values, and the note without it; no values and the whole text if it is invalid."""
    found = _FRONT_MATTER.match(text)
    if not found:
        return {}, text
    try:
        # Only texts: an impossible date must not make the rest invalid.
        values = yaml.load(found["head"], yaml.BaseLoader)  # noqa: S506 - this loader makes strings alone
    except (yaml.YAMLError, RecursionError, ValueError):
        return {}, text
    return (values, text[found.end() :]) if isinstance(values, dict) else ({}, text)


def title_of(values: dict[str, Any], body: str, name: str) -> str:
    heading = _HEADING.search(body)
    stem = name.rpartition("/")[2].rpartition(".")[0]
    return line_of(values.get("title")) or line_of(heading["title"] if heading else "") or stem


def date_of(values: dict[str, Any], name: str) -> date | datetime | None:
    for key in _DATE_KEYS:
        if at := _when(values.get(key)):
            return at
    return day_in(name)


def day_in(name: str) -> date | None:
    """The day at the beginning of a file's name."""
    found = _DAY.match(name.rpartition("/")[2])
    day = _when(found[0]) if found else None
    return day if isinstance(day, date) else None


def _when(value: Any) -> date | datetime | None:
    if not isinstance(value, str) or len(value) > LONGEST_DATE:
        return None
    text = value.strip()
    try:
        if _DAY.fullmatch(text):
            at: date = date.fromisoformat(text)
            day = at
        else:
            moment = datetime.fromisoformat(text)
            at = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
            day = at.date()
    except (ValueError, OverflowError):
        return None
    return at if _EARLIEST <= day <= datetime.now(UTC).date() + timedelta(days=1) else None
