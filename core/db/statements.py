"""Statements written by hand, with named parameters: in whole, so that they can be pasted into psql."""

from collections.abc import Mapping
from typing import Any

from django.db import connection

Rows = list[tuple[Any, ...]]


def fetch(statement: str, parameters: Mapping[str, Any]) -> Rows:
    """All rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: Rows = cursor.fetchall()
        return rows
