"""The stretch of time a request is about: days of the person's own, whatever their clocks do."""

import itertools
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from memory.search.time_windows import moments_of


def period(first, last, zone):
    return moments_of(first, last, ZoneInfo(zone))


def hours(day, zone):
    since, until = period(day, day, zone)
    return (until - since) / timedelta(hours=1)


def test_a_range_is_from_the_first_midnight_to_the_one_after_the_last_day():
    both = period(date(2026, 2, 22), date(2026, 2, 28), "Asia/Tokyo")
    assert both == (datetime(2026, 2, 21, 15, tzinfo=UTC), datetime(2026, 2, 28, 15, tzinfo=UTC))


def test_only_date_from_is_from_that_date_on():
    assert period(date(2026, 2, 22), None, "UTC") == (datetime(2026, 2, 22, tzinfo=UTC), None)


def test_only_date_to_is_from_the_beginning_of_time():
    assert period(None, date(2026, 2, 22), "UTC") == (None, datetime(2026, 2, 23, tzinfo=UTC))


@pytest.mark.parametrize(
    ("zone", "day", "length"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23),
        ("Europe/Berlin", date(2026, 10, 25), 25),
        ("America/New_York", date(2026, 3, 8), 23),
        ("America/New_York", date(2026, 11, 1), 25),
        ("Australia/Lord_Howe", date(2026, 4, 5), 24.5),
        ("Africa/Cairo", date(2026, 4, 24), 23),  # the clock skips midnight itself
        ("America/Havana", date(2026, 11, 1), 25),  # midnight comes twice
        ("UTC", date(2026, 3, 29), 24),
    ],
)
def test_a_day_on_which_clocks_change_has_its_own_length(zone, day, length):
    assert hours(day, zone) == length


def test_days_follow_each_other_without_a_gap():
    zone = ZoneInfo("Africa/Cairo")
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(365)]
    for day, following in itertools.pairwise(days):
        assert period(day, day, zone.key)[1] == period(following, following, zone.key)[0]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Etc/GMT+12", "Asia/Tokyo"])
def test_the_ends_of_the_calendar_are_no_error(zone):
    since, until = period(date.min, date.max, zone)
    assert since.year == 1
    assert until is None
