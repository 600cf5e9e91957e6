"""Writes to MEMORY.md and the daily logs, for tests, as whose they are."""

from datetime import date, timedelta

from core.isolation.acting import acting_as
from intake.tests.factories import NOW
from memory import documents

DAY = date(2026, 3, 1)
LATER = NOW + timedelta(hours=1)


def create(user, content, day=None):
    with acting_as(user):
        return documents.create(user=user, day=day, content=content, now=NOW)


def replace(user, content, expected, day=None):
    with acting_as(user):
        return documents.replace(user=user, day=day, content=content, expected=expected, now=LATER)


def append(user, text, day=DAY):
    with acting_as(user):
        return documents.append(user=user, day=day, text=text, now=LATER)
