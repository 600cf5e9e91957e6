"""Where a list was left: written into an address, and read from one that anybody may have changed."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from core.errors import NotFound
from core.paging import Position, position_in_address
from intake.tests.factories import NOW

ID = UUID(int=7)


@pytest.mark.parametrize("moment", [NOW, NOW.replace(microsecond=1), NOW.astimezone(timezone(timedelta(hours=14)))])
def test_a_position_is_read_as_it_was_written(moment):
    position = Position(moment, ID)
    assert Position.parse(str(position)) == position
    assert not {"+", " ", "&"} & set(str(position))


def test_an_offset_is_read_as_the_moment_it_means():
    assert Position.parse(f"2026-03-01T13:30:00+01:30_{ID}") == Position(datetime(2026, 3, 1, 12, tzinfo=UTC), ID)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "_",
        "\0",
        f"_{ID}",
        f"2026-03-01_{ID}",
        f"2026-03-01T12:00:00_{ID}",
        "2026-03-01T12:00:00Z_x",
        "2026-03-01T12:00:00Z_",
        f"2026-03-01T12:00:00Z{ID}",
        f"0001-01-01T00:00:00+14:00_{ID}",
        f"9999-12-31T23:59:59-14:00_{ID}",
    ],
)
def test_what_is_no_position_is_refused_and_in_an_address_leads_nowhere(text):
    with pytest.raises(ValueError):
        Position.parse(text)
    if text:
        with pytest.raises(NotFound):
            position_in_address(text)


def test_an_address_without_one_is_the_lists_beginning():
    assert position_in_address(None) is position_in_address("") is None
