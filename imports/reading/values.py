"""Values of unknown form, read or refused: the expected text, list, object or time, or an empty one.

`line_of(message, "author", "name")` looks below these names first.
"""

import hashlib
import json
import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from core.text import pg_text
from recollect_cli.values import Fields, joined, list_of, object_of, objects_of, value_at

_NUMBER = re.compile(r"\s*[+-]?\d{1,25}(\.\d{1,25})?\s*\Z")
# Found here too by every reader.
__all__ = ["Fields", "joined", "list_of", "object_of", "objects_of", "value_at"]


def text_of(value: Any, *path: str) -> str:
    """A text that can be stored; empty for any other type."""
    value = value_at(value, *path)
    return pg_text(value) if isinstance(value, str) else ""


def line_of(value: Any, *path: str) -> str:
    """A title or name: one line."""
    return " ".join(text_of(value, *path).split())


def id_of(value: Any, *path: str) -> str:
    """An id; numbers become texts, all other types an empty one."""
    value = value_at(value, *path)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**30:
        return str(value)
    return text_of(value).strip()


def name_of_block(block: Fields) -> str:
    """What a message calls the file of a block: its name, or else its kind."""
    return line_of(block.get("title")) or line_of(block.get("filename")) or line_of(block.get("type"))


def first_of(fields: Any, *names: str) -> str:
    """The first of these fields that says something, as one line."""
    return next(filter(None, (line_of(id_of(fields, name)) for name in names)), "")


def parsed(text: Any) -> Any:
    """The value of a text in JSON; None for anything else."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return None


def compact(value: Any) -> str:
    """A value as short JSON for a folded tool call; deeply nested parts are left out."""
    try:
        return pg_text(json.dumps(value, ensure_ascii=False, default=str))[:4000]
    except (RecursionError, ValueError):
        return ""


def stable_id(*parts: object) -> str:
    """The same id for the same content, if the export has none."""
    return hashlib.sha256("\0".join(map(str, parts)).encode(errors="replace")).hexdigest()[:32]


def base_name(name: str) -> str:
    """A file's name without its folders."""
    return name.rpartition("/")[2]


def parse_time(value: Any, *path: str, now: datetime | None = None) -> datetime | None:
    """An aware time in UTC; None for what is no time, before 2015, or more than a day ahead. No zone means UTC."""
    match value := value_at(value, *path):
        case bool():
            return None
        case str():
            time = _from_text(value)
        case int() | float() | Decimal():
            time = _from_number(value)
        case _:
            return None
    # None of these products is older, and a clock may be in another zone.
    if time is None or not datetime(2015, 1, 1, tzinfo=UTC) <= time <= (now or datetime.now(UTC)) + timedelta(days=1):
        return None
    return time


def first_time(fields: dict[str, Any], *names: str) -> datetime | None:
    """The time in the first of these fields that has one."""
    return next(filter(None, (parse_time(fields, name) for name in names)), None)


def _from_text(text: str) -> datetime | None:
    if len(text) > 64:
        return None
    if _NUMBER.match(text):
        return _from_number(float(text))
    return moment_of(text)


def moment_of(text: str) -> datetime | None:
    """A time as ISO writes it, in UTC, which is also its zone if it names none."""
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
    if abs(seconds) >= 10**14:
        seconds /= 1_000_000
    elif abs(seconds) >= 10**11:
        seconds /= 1_000
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
