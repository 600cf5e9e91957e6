"""A year, a month or a day, as the list of embeddings is narrowed by time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from django.utils import timezone
from django.utils.formats import date_format


@dataclass(frozen=True, slots=True)
class Period:
    """In the site's time zone; written `2026`, `2026-11` or `2026-11-05`."""

    year: int
    month: int | None = None
    day: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Period":
        """Raises `ValueError` for what is no date."""
        period = cls(*(int(number) for number in text.split("-", 2)))
        period.start, period.end  # noqa: B018 - a date that does not exist shows itself here
        return period

    def __str__(self) -> str:
        numbers = [f"{self.year:04}", *(f"{number:02}" for number in (self.month, self.day) if number)]
        return "-".join(numbers)

    @property
    def label(self) -> str:
        if self.month is None:
            return str(self.year)
        return date_format(self.first_day, "YEAR_MONTH_FORMAT" if self.day is None else "DATE_FORMAT")

    @property
    def first_day(self) -> date:
        return date(self.year, self.month or 1, self.day or 1)

    @property
    def start(self) -> datetime:
        return _midnight(self.first_day)

    @property
    def end(self) -> datetime:
        """The start of the next one."""
        if self.day:
            return _midnight(self.first_day + timedelta(days=1))
        if self.month:
            return _midnight((self.first_day + timedelta(days=31)).replace(day=1))
        return _midnight(date(self.year + 1, 1, 1))

    def line(self) -> Iterator["Period"]:
        """From the year down to this one."""
        yield Period(self.year)
        if self.month:
            yield Period(self.year, self.month)
        if self.day:
            yield self

    def parts(self) -> Iterator["Period"]:
        """A year's months, a month's days, newest first; nothing of a day."""
        if self.month is None:
            yield from (Period(self.year, month) for month in range(12, 0, -1))
        elif self.day is None:
            last = (self.end - timedelta(hours=12)).day
            yield from (Period(self.year, self.month, day) for day in range(last, 0, -1))


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime(day.year, day.month, day.day))  # noqa: DTZ001 - made aware here
