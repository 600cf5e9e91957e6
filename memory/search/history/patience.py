"""How long a source may take: the database itself ends the statement that would take longer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled


class OutOfTime(Exception):
    """What was asked of the database in this time is not done, and never will be."""


class Patience:
    """What is left of some seconds; the clock runs from the beginning."""

    def __init__(self, seconds: float) -> None:
        self._ends = monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds; less than 0 when it is at an end."""
        return self._ends - monotonic()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """A transaction whose statements end by then. Raises `OutOfTime`."""
    patience = Patience(seconds)
    try:
        with transaction.atomic(), _unchanged_afterwards(), connection.execute_wrapper(_limited_by(patience)):
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise OutOfTime from error
        raise


def _limited_by(patience: Patience) -> Callable[..., Any]:
    def execute(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        if patience.left <= 0:
            raise OutOfTime
        # Beside Django's cursor, which would come here again. A limit of 0 would be none.
        milliseconds = str(max(1, int(patience.left * 1000)))
        context["connection"].connection.execute(_LIMIT, [milliseconds])
        return execute(sql, params, many, context)

    return execute


_LIMIT = "SELECT set_config('statement_timeout', %s, true)"


@contextmanager
def _unchanged_afterwards() -> Iterator[None]:
    """The limit is the transaction's, which may be an outer one that goes on; a rollback restores it by itself."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout')")
        (before,) = cursor.fetchone()
        yield
        cursor.execute(_LIMIT, [before])
