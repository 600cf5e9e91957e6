"""Limits what searches take: the time of each, and together half of the process's database connections.

The database itself cancels a statement that would take longer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from math import inf
from threading import BoundedSemaphore
from time import monotonic
from typing import Any, TypeVar

from django.conf import settings
from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from core.errors import Unavailable
from core.isolation.acting import acting_as
from core.text import gettext_noop as _
from intake.models import User

T = TypeVar("T")

# How long a search waits for its turn. Beyond half of the pool a longer queue would only grow.
WAIT_SECONDS = 2.0
_SET = "SELECT set_config('statement_timeout', %s, true)"


TOO_MANY_SEARCHES = _("Too many searches are running at the moment. Try again shortly.")


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


def searching(user: User, work: Callable[[], T], *, seconds: float) -> T:
    """Run `work`, a part of a search that only queries the database, as the user, in a transaction of its own.

    It never asks a network endpoint. Raises `Unavailable` (retryable) if half of the pool is searching, and
    `OutOfTime` after so many seconds.
    """
    places = _places(_most_at_once())
    if not places.acquire(timeout=WAIT_SECONDS):
        raise Unavailable(TOO_MANY_SEARCHES)
    is_alone = not connection.in_atomic_block
    try:
        with acting_as(user), _limited(seconds) if is_alone else at_most(seconds):
            return work()
    finally:
        places.release()


def _most_at_once() -> int:
    """Half of the process's connections: pages, log-ins and answers always have the other half."""
    # Scratch databases have no pool.
    most: int = settings.DATABASES["default"]["OPTIONS"].get("pool", {}).get("max_size", 16)
    return max(1, most // 2)


@cache
def _places(count: int) -> BoundedSemaphore:
    return BoundedSemaphore(count)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """A transaction whose statements end by then. Raises `OutOfTime`."""
    kept = _unchanged_afterwards() if connection.in_atomic_block else nullcontext()
    with _as_out_of_time(), transaction.atomic(), kept, connection.execute_wrapper(_limit(Deadline(seconds))):
        yield


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """The same within a transaction that ends with it."""
    with _as_out_of_time(), connection.execute_wrapper(_limit(Deadline(seconds))):
        yield


@contextmanager
def _as_out_of_time() -> Iterator[None]:
    try:
        yield
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise OutOfTime from error
        raise


def _limit(deadline: Deadline) -> Callable[..., Any]:
    """Sets the limit before a statement, unless the present one is about right."""
    present = inf

    def run(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
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

    return run


@contextmanager
def _unchanged_afterwards() -> Iterator[None]:
    """In an outer transaction, restore its limit; otherwise the limit ends with this transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout')")
        (before,) = cursor.fetchone()
        yield
        cursor.execute(_SET, [before])
