"""Values and times of unknown form, read or refused.

Reads JSON values of unknown type: the expected text, list or object, or an empty one.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from core.text import pg_text


def text_of(value: Any) -> str:
    """A text that can be stored; empty for any other type."""
    return pg_text(value) if isinstance(value, str) else ""


def line_of(value: Any) -> str:
    """A title or name: one line."""
    return " ".join(text_of(value).split())


def id_of(value: Any) -> str:
    """An id; numbers become texts, all other types an empty one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**30:
        return str(value)
    return text_of(value).strip()


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def object_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[dict[str, Any]]:
    return [each for each in list_of(value) if isinstance(each, dict)]


def name_of_block(block: dict[str, Any]) -> str:
    """What a message calls the file of a block: its name, or else its kind."""
    return line_of(block.get("title")) or line_of(block.get("filename")) or line_of(block.get("type"))


def joined(texts: Iterable[str]) -> str:
    """The texts as paragraphs, without empty ones."""
    return "\n\n".join(text for text in texts if text.strip()).strip()


def compact(value: Any, at_most: int = 4000) -> str:
    """A value as short JSON for a folded tool call; deeply nested parts are left out."""
    try:
        return pg_text(json.dumps(value, ensure_ascii=False, default=str))[:at_most]
    except (RecursionError, ValueError):
        return ""


def stable_id(*parts: object) -> str:
    """The same id for the same content, if the export has none."""
    return hashlib.sha256("\0".join(map(str, parts)).encode(errors="replace")).hexdigest()[:32]


# --- Parses the times of exports: seconds, milliseconds or microseconds, ISO texts, numbers in texts; rejects nonsense

# None of these products is older.
_EARLIEST = datetime(2015, 1, 1, tzinfo=UTC)
_TOLERANCE = timedelta(days=1)
_NUMBER = re.compile(r"\s*[+-]?\d{1,25}(\.\d{1,25})?\s*\Z")
_LONGEST_TEXT = 64
_MILLISECONDS = 10**11
_MICROSECONDS = 10**14


def parse_time(value: Any, *, now: datetime | None = None) -> datetime | None:
    """An aware time in UTC; None for what is no time, before 2015, or more than a day ahead. No zone means UTC."""
    match value:
        case bool():
            return None
        case str():
            time = _from_text(value)
        case int() | float() | Decimal():
            time = _from_number(value)
        case _:
            return None
    if time is None or not _EARLIEST <= time <= (now or datetime.now(UTC)) + _TOLERANCE:
        return None
    return time


def _from_text(text: str) -> datetime | None:
    if len(text) > _LONGEST_TEXT:
        return None
    if _NUMBER.match(text):
        return _from_number(float(text))
    try:
        time = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _from_number(number: int | float | Decimal) -> datetime | None:
    try:
        seconds = float(number)
    except (OverflowError, ValueError):
        return None
    if not math.isfinite(seconds):
        return None
    if abs(seconds) >= _MICROSECONDS:
        seconds /= 1_000_000
    elif abs(seconds) >= _MILLISECONDS:
        seconds /= 1_000
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
