"""Statements written by hand, with named parameters: in whole, so that they can be pasted into psql."""

from collections.abc import Callable, Mapping
from typing import Any

from django.db import connection

Rows = list[tuple[Any, ...]]
Answer = Callable[[], Rows]


def fetch(statement: str, parameters: Mapping[str, Any]) -> Rows:
    """All rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: Rows = cursor.fetchall()
        return rows


def ask(statement: str, parameters: Mapping[str, Any]) -> Answer:
    """As `fetch`; the rows come with the call of what it returns."""
    rows = fetch(statement, parameters)
    return lambda: rows
