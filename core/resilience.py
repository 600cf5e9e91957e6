"""Guards every call of a network endpoint, Redis among them: none inside a transaction, and none for a while after
repeated time-outs.

A transaction holds one of the few connections of the pool. A call inside it would hold the connection as long as the
endpoint likes, and three slow calls a second would leave none for log-ins.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import ceil
from threading import Lock
from time import monotonic

import redis
from django.conf import settings
from django.core.exceptions import SynchronousOnlyOperation
from django.db import DEFAULT_DB_ALIAS, connections
from redis.backoff import NoBackoff
from redis.retry import Retry

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


def give_connections_back() -> None:
    """Return this thread's connections to their pool; the next query takes a new one. An open transaction keeps its
    own. An event loop has none: it asks the database in threads.
    """
    with suppress(SynchronousOnlyOperation):
        for connection in connections.all(initialized_only=True):
            if "pool" in connection.settings_dict["OPTIONS"] and not connection.in_atomic_block:
                connection.close()


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
        give_connections_back()
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


def client(url: str, *, seconds: float) -> "redis.Redis":
    """Thread-safe. `seconds` limits the wait for the connection and for each answer. No command is retried; each caller
    decides how it works without Redis.
    """
    return redis.Redis.from_url(
        url, socket_timeout=seconds, socket_connect_timeout=seconds, retry=Retry(NoBackoff(), 0)
    )
