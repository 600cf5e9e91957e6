"""The time zone that a person lives in, as they set it on their account page."""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from intake.models import User


def zone_of(user: User) -> ZoneInfo:
    """UTC for a zone that this machine does not know."""
    try:
        return ZoneInfo(user.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")
