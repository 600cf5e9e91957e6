"""Lets searches and pages read a standby in place of the primary: `DATABASE_REPLICA_URL`, by streaming replication.

A standby is slightly behind. It is read when it has replayed

1. everything that the primary had written `DATABASE_REPLICA_STALENESS_SECONDS` ago, and
2. everything that this user has committed since, in any process: Redis keeps the user's last position.

Both are positions in the write-ahead log, so that no machine's clock matters. Otherwise the primary is read, also while
the standby or Redis does not answer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from logging import getLogger
from math import inf
from threading import Lock
from time import monotonic

import redis
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.crypto import salted_hmac

from core import resilience

ALIAS = "replica"
# How long the standby is not tried after a failure, so that requests do not wait for it repeatedly.
LEFT_ALONE_SECONDS = 5
REDIS_SECONDS = 0.5
_MEMBER = "position"

# Positions are counted in bytes from the beginning of the log.
_WRITTEN = "SELECT (pg_current_wal_lsn() - '0/0')::bigint"
_REPLAYED = "SELECT (pg_last_wal_replay_lsn() - '0/0')::bigint"
_HAS_CHANGES = "SELECT (pg_current_xact_id_if_assigned() IS NOT NULL)::int"

logger = getLogger(__name__)


class _Known:
    """The process's knowledge of both servers: the primary's earlier log positions, and the standby's last failure."""

    def __init__(self) -> None:
        self._lock = Lock()
        # The primary's position at times of this process's clock: (time, position).
        self._samples: tuple[tuple[float, int], ...] = ()
        self._is_asking = False
        self.failed_at = -inf

    def primary_position(self, primary: BaseDatabaseWrapper) -> int:
        """The oldest position within the allowed staleness.

        The primary is queried at most twice in that time, and once for each thread that begins while nothing is known.
        """
        allowed = settings.DATABASE_REPLICA_STALENESS_SECONDS
        now = monotonic()
        with self._lock:
            samples = self._samples = tuple(one for one in self._samples if now - one[0] < allowed)
            is_due = not self._is_asking and (not samples or now - samples[-1][0] > allowed / 2)
            self._is_asking = self._is_asking or is_due
        if samples and not is_due:
            return samples[0][1]
        # Without the lock: a primary that does not answer holds up this thread alone.
        try:
            sample = now, _ask(primary, _WRITTEN)
        finally:
            if is_due:
                with self._lock:
                    self._is_asking = False
        with self._lock:
            self._samples = samples = tuple(sorted((*self._samples, sample)))
        return samples[0][1]


_known = _Known()


@contextmanager
def reading_replica(user_id: str) -> Iterator[bool]:
    """Within the block Django's default connection is the standby's, if it is recent enough for this user.

    Yields whether it is. After a failure, call `leave_alone()` and query the primary.
    """
    primary, replica = connections[DEFAULT_DB_ALIAS], connections[ALIAS]
    if not _is_near(primary, replica, user_id):
        yield False
        return
    connections[DEFAULT_DB_ALIAS] = replica
    try:
        yield True
    finally:
        connections[DEFAULT_DB_ALIAS] = primary


def has_changes(primary: BaseDatabaseWrapper) -> bool:
    """Whether the open transaction has changed anything."""
    return bool(_ask(primary, _HAS_CHANGES))


def remember_position(user_id: str) -> None:
    """Record the position after a commit of this user; later reads of a standby for the user must include it."""
    position = _ask(connections[DEFAULT_DB_ALIAS], _WRITTEN)
    key = _key(user_id)
    try:
        with _redis(settings.REDIS_URL).pipeline() as together:
            # Two processes may write in either order: the higher position wins.
            together.zadd(key, {_MEMBER: position}, gt=True)
            # After that time the staleness bound is enough.
            together.expire(key, int(settings.DATABASE_REPLICA_STALENESS_SECONDS) + 60)
            together.execute()
    except redis.RedisError:
        logger.warning("Redis did not take the position of a commit: a search may miss it for a moment.")


def leave_alone() -> None:
    """Do not use the standby for some seconds after a failure; its connection may be broken."""
    _known.failed_at = monotonic()
    connections[ALIAS].close()


def _is_near(primary: BaseDatabaseWrapper, replica: BaseDatabaseWrapper, user_id: str) -> bool:
    if monotonic() - _known.failed_at < LEFT_ALONE_SECONDS:
        return False
    try:
        own = _redis(settings.REDIS_URL).zscore(_key(user_id), _MEMBER) or 0
    except redis.RedisError:
        return False
    needed = max(_known.primary_position(primary), own)
    try:
        return _ask(replica, _REPLAYED) >= needed
    except DatabaseError as error:
        logger.warning("The replica does not answer (%s): the primary is read.", type(error).__name__)
        leave_alone()
        return False


def _ask(connection: BaseDatabaseWrapper, statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        (number,) = cursor.fetchone()
    # A server that has replayed nothing is not a standby.
    return number or 0


def _key(user_id: str) -> str:
    """Two installations may share one Redis."""
    return f"recollect:written:{salted_hmac('core.isolation.replica', user_id).hexdigest()}"


@lru_cache(maxsize=1)
def _redis(url: str) -> redis.Redis:
    return resilience.client(url, seconds=REDIS_SECONDS)
