"""Statements of every call: planned once on each connection, since planning one can take as long as its run.

Django writes parameters into the text of a statement, which so is another one every time; here the server binds them.
"""

from collections.abc import Mapping
from typing import Any

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper


def fetch(statement: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """All rows of a statement, which is one of a few; `parameters` by name."""
    with _cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def _cursor() -> CursorWrapper:
    connection.ensure_connection()
    if connection.queries_logged:
        # A statement that the server binds has no text to be logged by.
        return connection.cursor()
    return CursorWrapper(psycopg.Cursor(connection.connection), connection)
