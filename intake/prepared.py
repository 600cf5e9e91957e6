"""Statements of every call: planned once on each connection, since planning one can take as long as its run.

Django writes parameters into the text of a statement, which so is another one every time; here the server binds them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections

Rows = list[tuple[Any, ...]]

_PLACE = re.compile(r"%(?:\((\w+)\)s|%)")


def fetch(statement: str, parameters: Mapping[str, Any]) -> Rows:
    """All rows of a statement, which is one of a few; `parameters` by name.

    Does what Django's own cursors do, for whoever watches (`execute_wrapper`), counts or handles the errors of what is
    asked, but for their layers, which take twice as long as psycopg does.
    """
    # Looked up once: what `django.db.connection` is, is worked out whenever it is asked for anything.
    database: Any = connections[DEFAULT_DB_ALIAS]
    if database.queries_logged:
        # A statement that the server binds has no text to be logged by.
        with database.cursor() as cursor:
            cursor.execute(statement, parameters)
            logged: Rows = cursor.fetchall()
            return logged
    execute: Callable[..., Rows] = _fetch
    for wrapper in reversed(database.execute_wrappers):
        execute = partial(wrapper, execute)
    database.ensure_connection()
    return execute(statement, parameters, False, {"connection": database, "cursor": None})


def plain_array(values: Iterable[object]) -> str:
    """An array as PostgreSQL reads it, of what needs no quotes: psycopg takes several times as long to see that."""
    return f"{{{','.join(map(str, values))}}}"


def _fetch(statement: str, parameters: Mapping[str, Any], _: bool, context: Mapping[str, Any]) -> Rows:
    database = context["connection"]
    database.validate_no_broken_transaction()
    with database.wrap_database_errors:
        numbered, names = _as_the_server_reads_it(statement)
        values = [parameters[name] for name in names]
        return psycopg.RawCursor(database.connection).execute(numbered, values).fetchall()


# psycopg remembers it as well, but not of what has over 4,096 characters, which it then reads anew each time.
@lru_cache(maxsize=256)
def _as_the_server_reads_it(statement: str) -> tuple[str, list[str]]:
    """The statement with its parameters numbered, and their names in that order."""
    numbers: dict[str, int] = {}

    def number(place: re.Match[str]) -> str:
        name = place[1]
        return "%" if name is None else f"${numbers.setdefault(name, len(numbers) + 1)}"

    return _PLACE.sub(number, statement), list(numbers)
