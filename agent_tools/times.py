"""Days and moments as people mean them: in their own time zone."""

from datetime import date, datetime, time
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from intake.models import User


def zone_of(user: User) -> ZoneInfo:
    """UTC for a zone that this machine does not know."""
    try:
        return ZoneInfo(user.time_zone)
    except (ZoneInfoNotFoundError, ValueError):
        return ZoneInfo("UTC")


def moment(text: str, *, zone: ZoneInfo) -> datetime:
    """The moment that an ISO 8601 date (its beginning) or date-time names; without an offset, in the zone.

    Raises `ValueError` for anything else.
    """
    if len(text) == len("YYYY-MM-DD"):
        return datetime.combine(date.fromisoformat(text), time.min, tzinfo=zone)
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)
