"""What is asked of `search_history`, and the stretch of time it is about."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from intake.services import without_nul

DEFAULT_RESULTS = 10
MAX_RESULTS = 50
# What the engine reads of a query: more than an embedding model does, and no more words than a search can look up.
ENGINE_LENGTH = 2_000


class HistoryScope(StrEnum):
    ALL = "all"
    MEMORY = "memory"
    DAILY_LOG = "daily_log"
    SESSIONS = "sessions"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRequest:
    """`date_from` and `date_to` are days of the person's own, both included; None leaves that side open."""

    query: str
    scope: HistoryScope = HistoryScope.ALL
    date_from: date | None = None
    date_to: date | None = None
    max_results: int = DEFAULT_RESULTS

    def __post_init__(self) -> None:
        if not without_nul(self.query).strip():
            raise ValueError("A search needs a query.")
        if not 1 <= self.max_results <= MAX_RESULTS:
            raise ValueError(f"From 1 to {MAX_RESULTS} results.")


@dataclass(frozen=True, slots=True)
class Period:
    """From `since` on and before `until`; None leaves that side open."""

    since: datetime | None
    until: datetime | None


def within(request: HistoryRequest, zone: ZoneInfo) -> Period:
    """The days of the request in this zone. A day lasts until the next one begins, be it 23 hours or 25."""
    first, last = request.date_from, request.date_to
    return Period(
        since=None if first is None else _beginning(first, zone),
        until=None if last is None or last == date.max else _beginning(last + timedelta(days=1), zone),
    )


def _beginning(day: date, zone: ZoneInfo) -> datetime:
    """Where the clock skips midnight, the moment it skips; where it strikes midnight twice, the first time."""
    midnight = datetime.combine(day, time.min, tzinfo=zone)
    # In UTC, since what compares two moments of one zone compares what their clocks show.
    try:
        return midnight.astimezone(UTC)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
