"""Parses the times of exports: seconds, milliseconds or microseconds, ISO texts, numbers in texts; rejects nonsense."""

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from imports.reading.values import value_at

_NUMBER = re.compile(r"\s*[+-]?\d{1,25}(\.\d{1,25})?\s*\Z")


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
