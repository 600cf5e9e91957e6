"""Answers that are being written: how many at once, and their leases, requests to stop and streams in Redis.

All keys contain the turn's id, and all expire. Without Redis answers continue; see `intake/answers/log.py`.
"""

import logging
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import redis
import redis.asyncio
from django.conf import settings
from django.db import connection
from redis.exceptions import RedisError

from core import resilience
from core.citus.routing import about
from core.errors import RateLimited
from core.isolation.acting import Caller
from core.resilience import for_each
from core.text import gettext_noop as _
from intake.chats import services
from intake.models import Turn

logger = logging.getLogger(__name__)

# How long a stream is kept after its last event: while the answer is written, and once it is complete and in the
# database.
KEPT_SECONDS = 600
STOP_KEPT_SECONDS = 60
# A request to stop is for one attempt at an answer, or for all.
ANY_ATTEMPT = 0
TIMEOUT_SECONDS = 1.0
PREFIX = "recollect:answer:"


def stream_key(turn_id: int) -> str:
    return f"{PREFIX}{turn_id}"


def lease_key(turn_id: int) -> str:
    return f"{PREFIX}{turn_id}:lease"


def stop_key(turn_id: int) -> str:
    return f"{PREFIX}{turn_id}:stop"


def request_stop(turn_id: int, *, attempt: int) -> bool:
    """Ask the writer, which may be in another process, to stop; returns whether Redis accepted the request."""
    try:
        _client().set(stop_key(turn_id), attempt, ex=STOP_KEPT_SECONDS)
    except RedisError as error:
        _log_away(error)
        return False
    return True


def forget(turn_ids: Iterable[int]) -> None:
    """Remove the data of deleted turns, and tell a writer that is still running to stop."""
    ids = list(turn_ids)
    if not ids:
        return
    try:
        with _client().pipeline(transaction=False) as pipeline:
            for turn_id in ids:
                pipeline.set(stop_key(turn_id), ANY_ATTEMPT, ex=STOP_KEPT_SECONDS)
            pipeline.unlink(*map(stream_key, ids))
            pipeline.execute()
    except RedisError as error:
        _log_away(error)


def without_lease(attempts: Collection[tuple[int, int]]) -> list[int] | None:
    """Of these turns, each with its attempt, those whose writer holds no lease; None if this is unknown.

    Redis must have run for longer than a lease lasts: one that has just started has lost them all. A replica that
    sentinels have just promoted has run for long, but may have let them expire meanwhile.
    """
    if not attempts:
        return []
    if resilience.sentinels_of(settings.REDIS_URL):
        return None
    try:
        client = _client()
        leases: Any = client.mget([lease_key(turn_id) for turn_id, _ in attempts])
        uptime = client.info("server")["uptime_in_seconds"]
    except RedisError as error:
        _log_away(error)
        return None
    if uptime <= 2 * settings.ANSWER_LEASE_SECONDS:
        return None
    pairs = zip(attempts, leases, strict=True)
    return [turn_id for (turn_id, attempt), lease in pairs if lease is None or int(lease) != attempt]


def _client() -> "redis.Redis":
    return _client_at(settings.REDIS_URL)


@lru_cache(maxsize=8)
def _client_at(url: str) -> "redis.Redis":
    return resilience.client(url, seconds=TIMEOUT_SECONDS)


def _log_away(error: RedisError) -> None:
    logger.warning("Redis is away, and answers are followed without it (%s)", type(error).__name__)


ANSWER_RETRY_SECONDS = 5
# Separate from any other use of PostgreSQL's advisory locks.
LOCK = 0x616E7377


def refuse_one_too_many(*, caller: Caller, now: datetime) -> None:
    """Call at the end of the transaction that begins a turn: it is rolled back if there is no room for an answer.

    Raises `RateLimited` when more than `CONCURRENT_ANSWERS` of the caller's turns are being answered, this one
    included.
    """
    most = settings.CONCURRENT_ANSWERS
    if most < 1:
        return
    with connection.cursor() as cursor:
        # One transaction after the other, each until its commit: two that begin together would not see each other's
        # turn.
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LOCK, caller.user_id])
    alive = now - timedelta(seconds=settings.TURN_ABANDONED_SECONDS)
    running = Turn.objects.for_caller(caller).filter(status=Turn.Status.STREAMING, updated_at__gte=alive)
    if running.count() > most:
        raise RateLimited(
            _("%(count)s of your answers are being written. Wait for one to end."),
            count=most,
            retry_after=ANSWER_RETRY_SECONDS,
        )


def close_abandoned_turns(*, now: datetime, idle: timedelta) -> int:
    """Returns the number of closed turns. `idle` is the silence that is enough without Redis.

    The database must show a silence of a lease's length, and Redis a missing lease: either alone may have been
    unavailable for a moment.
    """
    silent = services.open_turns(silent_since=now - min(idle, timedelta(seconds=settings.ANSWER_LEASE_SECONDS)))
    dead = set(without_lease([(turn.pk, turn.attempt) for turn in silent]) or ())
    abandoned = [turn for turn in silent if turn.pk in dead or turn.updated_at < now - idle]
    closed: list[bool] = []
    for_each("memory.close_abandoned_turns, turns", abandoned, lambda turn: closed.append(_interrupt(turn)))
    return sum(closed)


def _interrupt(turn: Turn) -> bool:
    with about(turn.user_id):
        return services.interrupt_turn(turn_id=turn.pk, attempt=turn.attempt)
