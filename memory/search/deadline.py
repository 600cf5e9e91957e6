"""Limits the time of a search: the database itself cancels a statement that would take longer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any, TypeVar

from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from core.deadlines import TOO_LATE
from core.errors import Unavailable
from core.isolation.acting import acting_as
from intake.models import User

T = TypeVar("T")

_SET = "SELECT set_config('statement_timeout', %s, true)"


class OutOfTime(Unavailable):
    """The statement was cancelled at the deadline, and is not repeated."""

    default_detail = TOO_LATE


class Deadline:
    """A number of seconds, counted from the object's creation."""

    def __init__(self, seconds: float) -> None:
        self._ends = monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds; negative after the end."""
        return self._ends - monotonic()


def searching(user: User, work: Callable[[], T], *, seconds: float) -> T:
    """Run `work`, a part of a search that only queries the database, as the user, in a transaction of its own.

    It never asks a network endpoint. Raises `OutOfTime` after so many seconds.
    """
    is_alone = not connection.in_atomic_block
    with acting_as(user), at_most(seconds, is_inside=not is_alone):
        return work()


@contextmanager
def at_most(seconds: float, *, is_inside: bool | None = None) -> Iterator[None]:
    """A transaction whose statements end by then. Raises `OutOfTime`.

    Inside another transaction, whose limit is restored afterwards, unless `is_inside` says that it ends with this one.
    """
    deadline, present = Deadline(seconds), inf
    is_inside = connection.in_atomic_block if is_inside is None else is_inside

    def limited(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        """Sets the limit before a statement, unless the present one is about right."""
        nonlocal present
        left = deadline.left
        if left <= 0:
            raise OutOfTime
        # A statement may take a little longer: setting the limit costs as much as a short statement.
        if present - left > 0.1:
            # Beside Django's cursor, which would recurse here. A limit of 0 would be none.
            with context["connection"].wrap_database_errors:
                context["connection"].connection.execute(_SET, [str(max(1, int(left * 1000)))])
            present = left
        return execute(sql, params, many, context)

    try:
        with transaction.atomic(savepoint=is_inside), connection.cursor() as cursor:
            if is_inside:
                cursor.execute("SELECT current_setting('statement_timeout')")
                (before,) = cursor.fetchone()
            with connection.execute_wrapper(limited):
                yield
            if is_inside:
                cursor.execute(_SET, [before])
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise OutOfTime from error
        raise
