"""Days in addresses: written one way, and within the years that have logs."""

from datetime import date
from typing import TypeAlias

from core.errors import NotFound
from memory.documents import YEARS
from memory.rest.queries import parse_day

Day: TypeAlias = date | None
"""None for MEMORY.md, which has none."""


def day_of(text: str) -> date:
    """Raises `NotFound` for what is no day, as for one that can have no log."""
    try:
        day = parse_day(text)
    except ValueError:
        raise NotFound from None
    if day.year not in YEARS:
        raise NotFound
    return day
