"""Keeps one slow or failing part from stopping others: endpoints, Redis clients, periodic tasks, deadlines, priority.

Guards every call of a network endpoint: none inside a transaction, and none for a while after repeated time-outs.

A transaction holds one of the few connections of the pool. A call inside it would hold the connection as long as the
endpoint likes, and three slow calls a second would leave none for log-ins.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from math import ceil
from threading import Lock
from time import monotonic
from typing import TypeVar

import redis
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connections
from django.utils import timezone
from redis.backoff import NoBackoff
from redis.retry import Retry

from core.errors import Unavailable
from core.text import gettext_noop as _

# After so many time-outs in a row an endpoint is left alone for so many seconds. Then one more is enough.
MOST_TIMEOUTS = 3
LEFT_ALONE_SECONDS = 10.0

logger = logging.getLogger(__name__)


class LeftAlone(Exception):
    """The endpoint did not answer several times in a row, and is not asked for `seconds` more."""

    def __init__(self, name: str, seconds: float) -> None:
        self.seconds = max(1, ceil(seconds))
        super().__init__(f"{name} did not answer in time {MOST_TIMEOUTS} times and is left alone for {self.seconds} s.")


def refuse_in_transaction(name: str) -> None:
    """A call to an endpoint while a transaction is open is a bug. Raises `RuntimeError` in tests; elsewhere it logs an
    error, because the answer is worth more.
    """
    # The process of `make up` has no settings, and so no database of Django's.
    if not settings.configured or not is_in_transaction():
        return
    sentence = f"{name} is called inside a database transaction, which keeps a connection from everybody else"
    if settings.REFUSES_CALLS_IN_TRANSACTIONS:
        raise RuntimeError(sentence)
    logger.error(sentence, stack_info=True)


def is_in_transaction() -> bool:
    """A test in a transaction of its own marks the connection; there only a transaction of `acting_as` counts."""
    database = connections[DEFAULT_DB_ALIAS]
    if getattr(database, "acting", None) is not None:
        return True
    return database.in_atomic_block and not getattr(database, "is_in_transaction_of_test", False)


class Endpoint:
    """One endpoint in one process. `name` is for logs and people."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = Lock()
        self._timeouts = 0
        self._left_alone_until = 0.0

    @contextmanager
    def call(self, *timeouts: type[Exception]) -> Iterator[None]:
        """Around one call; `timeouts` are the errors by which its client reports one. Raises `LeftAlone`."""
        refuse_in_transaction(self.name)
        self._begin()
        try:
            yield
        except timeouts:
            self._count_timeout()
            raise
        except BaseException:
            # An error that comes at once holds nothing up.
            self._succeeded()
            raise
        self._succeeded()

    @property
    def is_left_alone(self) -> bool:
        with self._lock:
            return monotonic() < self._left_alone_until

    def _begin(self) -> None:
        """After a pause only one call tries the endpoint: others would wait for the same time-out."""
        with self._lock:
            now = monotonic()
            if now < self._left_alone_until:
                raise LeftAlone(self.name, self._left_alone_until - now)
            if self._left_alone_until:
                self._left_alone_until = now + LEFT_ALONE_SECONDS

    def _succeeded(self) -> None:
        with self._lock:
            self._timeouts, self._left_alone_until = 0, 0.0

    def _count_timeout(self) -> None:
        with self._lock:
            self._timeouts += 1
            if self._timeouts < MOST_TIMEOUTS:
                return
            self._timeouts = MOST_TIMEOUTS - 1
            self._left_alone_until = monotonic() + LEFT_ALONE_SECONDS
        logger.warning("%s does not answer in time and is left alone for %g seconds", self.name, LEFT_ALONE_SECONDS)


# --- Creates the clients of the Redis in REDIS_URL ---


def client(url: str, *, seconds: float) -> "redis.Redis":
    """Thread-safe. `seconds` limits the wait for the connection and for each answer. No command is retried; each caller
    decides how it works without Redis.
    """
    return redis.Redis.from_url(
        url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=Retry(NoBackoff(), 0)
    )


# --- The round of a periodic task over its items: one that fails holds up none of the others ---
# A failure is logged once, with its traceback, and again only after the task has been without it for a round. The item
# is tried again in the next round.

T = TypeVar("T")

# After so many of them in a row the database is taken to be away, and the rest waits for the next round.
MOST_DATABASE_FAILURES = 3


# The kinds of failure of each task's last round.
_known: dict[str, set[str]] = {}
_lock = Lock()


Round = tuple[int, int, bool]
"""How many items were done, how many failed, and whether all of them were tried."""


def for_each(
    task: str,
    items: Iterable[T],
    work: Callable[[T], object],
    *,
    seconds: float | None = None,
    postpone: Callable[[T], object] | None = None,
) -> Round:
    """Do `work` for each item for at most so many seconds. One that fails does not stop the others.

    `task` names the round in the log, and must be another one for each round within a task.

    `postpone` is called with an item that failed, if its next attempt should come later than the next round.
    """
    until = None if seconds is None else monotonic() + seconds
    done = failed = database_failures = 0
    kinds: set[str] = set()
    has_all = True
    for item in items:
        try:
            work(item)
        except Exception as error:
            failed += 1
            kinds.add(_say_once(task, error))
            is_of_the_database = isinstance(error, OperationalError | InterfaceError)
            database_failures = database_failures + 1 if is_of_the_database else 0
            if postpone is not None:
                _postpone(task, item, postpone, kinds)
        else:
            done += 1
            database_failures = 0
        if database_failures >= MOST_DATABASE_FAILURES or (until is not None and monotonic() >= until):
            has_all = False
            break
    with _lock:
        _known[task] = kinds
    return done, failed, has_all


def steps(task: str, *work: Callable[[], object]) -> Round:
    """The parts of a task: one that fails does not stop the others."""
    return for_each(task, work, lambda step: step())


def seconds_until(until: datetime | None) -> float | None:
    return None if until is None else (until - timezone.now()).total_seconds()


def _postpone(task: str, item: T, postpone: Callable[[T], object], kinds: set[str]) -> None:
    try:
        postpone(item)
    except Exception as error:
        kinds.add(_say_once(task, error))


def _say_once(task: str, error: Exception) -> str:
    """Returns the kind of failure: its type and the line that raised it, without its message."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = "" if last is None else f" at {last.tb_frame.f_code.co_qualname}:{last.tb_lineno}"
    kind = f"{type(error).__name__}{place}"
    with _lock:
        is_known = kind in _known.get(task, ())
        _known.setdefault(task, set()).add(kind)
    if not is_known:
        logger.error("%s: an item failed and is tried again later; the others go on (%s)", task, kind, exc_info=error)
    return kind


# --- The wall-clock deadline of a request: the outermost layer sets it, and every use of the database looks at it ---
# A thread cannot be stopped from outside. So the layer answers for a request that is too late, and its own thread ends
# at its next query: `config.database` checks the deadline before each, and `acting_as` has the server end a transaction
# that is still running then.

TOO_LATE = _("This took longer than the server allows, and was stopped. Try again in a moment.")


class RequestDeadline:
    """`seconds` from its creation. Tasks that a request leaves behind share the object, so it can be lifted for all."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends = monotonic() + seconds
        self._is_lifted = False

    def lift(self) -> None:
        """The response has begun: a stream lasts as long as its reader, and so does an answer that is written."""
        self._is_lifted = True

    @property
    def left(self) -> float | None:
        """Seconds, negative when it has passed; None without a limit."""
        return None if self._is_lifted else self._ends - monotonic()


# None outside a request: a command, a task.
deadline: ContextVar[RequestDeadline | None] = ContextVar("deadline", default=None)


def left() -> float | None:
    """Seconds until the deadline of the present request; None without one. Raises `Unavailable` when it has passed."""
    present = deadline.get()
    seconds = None if present is None else present.left
    if seconds is not None and seconds <= 0:
        raise Unavailable(TOO_LATE)
    return seconds


# --- Lowers the priority of threads that compute for long: on a busy machine requests and the database come first ---

# A thread with this niceness gets a tenth of a busy core beside a normal one, and all of an idle core.
NICENESS = 10


def step_back() -> None:
    """Lower the priority of the calling thread and of the threads that it starts. Only Linux has one per thread."""
    if sys.platform == "linux":
        os.nice(NICENESS)
