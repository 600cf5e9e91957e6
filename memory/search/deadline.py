"""Limits the time of a source: the database itself cancels a statement that would take longer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from math import inf
from time import monotonic
from typing import Any

from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

# Seconds that a statement may take beyond it: setting the limit costs as much as a short statement.
TOLERANCE = 0.1

_SET = "SELECT set_config('statement_timeout', %s, true)"


class OutOfTime(Exception):
    """The statement was cancelled at the deadline, and is not repeated."""


class Deadline:
    """A number of seconds, counted from the object's creation."""

    def __init__(self, seconds: float) -> None:
        self._ends = monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds; negative after the end."""
        return self._ends - monotonic()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """A transaction whose statements end by then. Raises `OutOfTime`."""
    kept = _unchanged_afterwards() if connection.in_atomic_block else nullcontext()
    try:
        with transaction.atomic(), kept, connection.execute_wrapper(_Limit(Deadline(seconds))):
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise OutOfTime from error
        raise


class _Limit:
    """Sets the limit before a statement, unless the present one is about right."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._set = inf

    def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        left = self._deadline.left
        if left <= 0:
            raise OutOfTime
        if self._set - left > TOLERANCE:
            # Beside Django's cursor, which would recurse here. A limit of 0 would be none.
            with context["connection"].wrap_database_errors:
                context["connection"].connection.execute(_SET, [str(max(1, int(left * 1000)))])
            self._set = left
        return execute(sql, params, many, context)


@contextmanager
def _unchanged_afterwards() -> Iterator[None]:
    """In an outer transaction, restore its limit; otherwise the limit ends with this transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout')")
        (before,) = cursor.fetchone()
        yield
        cursor.execute(_SET, [before])
