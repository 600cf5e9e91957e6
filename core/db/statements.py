"""Statements of every call: planned once on each connection, since planning one can take as long as its run.

Django writes parameters into the text of a statement, which so is another one every time; here the server binds them.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

Rows = list[tuple[Any, ...]]
Answer = Callable[[], Rows]
"""Gives a statement's rows; waits for them if they are not there."""


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


def ask(statement: str, parameters: Mapping[str, Any]) -> Answer:
    """As `fetch`, but without waiting: PostgreSQL is at work while its caller goes on."""
    return _without_waiting(statement, parameters, "send")


def put_off(statement: str, parameters: Mapping[str, Any]) -> Answer:
    """As `ask`, within a transaction: the statement is sent along with what is next, which may be the COMMIT.

    If it fails, so does that.
    """
    return _without_waiting(statement, parameters, "put_off")


def _without_waiting(statement: str, parameters: Mapping[str, Any], how: str) -> Answer:
    database: Any = connections[DEFAULT_DB_ALIAS]
    if database.queries_logged or database.execute_wrappers or not database.in_atomic_block:
        # Who watches is told how it went.
        rows = fetch(statement, parameters)
        return lambda: rows
    database.validate_no_broken_transaction()
    with database.wrap_database_errors:
        sent = getattr(database.connection, how)(statement, parameters)

    def answer() -> Rows:
        with database.wrap_database_errors:
            rows: Rows = sent.rows()
            return rows

    return answer


def plain_array(values: Iterable[object]) -> str:
    """An array as PostgreSQL reads it, of what needs no quotes: psycopg takes several times as long to see that."""
    return f"{{{','.join(map(str, values))}}}"


def _fetch(statement: str, parameters: Mapping[str, Any], _: bool, context: Mapping[str, Any]) -> Rows:
    database = context["connection"]
    database.validate_no_broken_transaction()
    with database.wrap_database_errors:
        rows: Rows = database.connection.send(statement, parameters).rows()
        return rows
