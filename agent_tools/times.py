"""Days and moments as people mean them: in their own time zone."""

import re
from datetime import date, datetime, time
from zoneinfo import ZoneInfo

DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def day(text: str) -> date:
    """The day that a YYYY-MM-DD names; raises `ValueError` for anything else, also for a week's or a compact date."""
    if not DAY.fullmatch(text):
        raise ValueError("not YYYY-MM-DD")
    return date.fromisoformat(text)


def moment(text: str, *, zone: ZoneInfo) -> datetime:
    """The moment that an ISO 8601 date (its beginning) or date-time names; without an offset, in the zone.

    Raises `ValueError` for anything else.
    """
    if DAY.fullmatch(text):
        return datetime.combine(day(text), time.min, tzinfo=zone)
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)
