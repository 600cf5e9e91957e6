"""What other processes see of an answer, in Redis: its events, the lease of its writer, and the wish that it stop.

Everything is named by the turn's id. The ids of a stream's entries are those of the events, attempt and position, so
Redis itself refuses what a writer that another attempt has replaced still sends. All of it expires. While Redis is away
answers go on, and are followed in their own process or from the database.
"""

import json
import logging
from collections.abc import Collection, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import redis
import redis.asyncio
from django.conf import settings
from redis.exceptions import RedisError

from core import redis_clients
from intake.agent.events import AgentEvent, ReasoningWritten, TextWritten, ToolCalled, ToolReturned
from intake.answers.log import EventId, length_of

logger = logging.getLogger(__name__)

# How long a stream is kept after its last event: while the answer is written, and once it is whole and in the database.
KEPT_SECONDS = 600
KEPT_AFTER_END_SECONDS = 120
STOP_KEPT_SECONDS = 60
# A request to stop is made of one attempt at an answer, or of every.
ANY_ATTEMPT = 0
# About so many entries are kept of each stream. A follower who finds the first ones gone goes on from the database.
LONGEST_STREAM = 20_000
TIMEOUT_SECONDS = 1.0

PREFIX = "recollect:answer:"
_FIELD = "event"


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One entry of a stream: an event and where it ends, or, without an event, that the answer has ended."""

    id: EventId
    event: AgentEvent | None


def stream_key(turn_id: int) -> str:
    return f"{PREFIX}{turn_id}"


def lease_key(turn_id: int) -> str:
    return f"{PREFIX}{turn_id}:lease"


def stop_key(turn_id: int) -> str:
    return f"{PREFIX}{turn_id}:stop"


def request_stop(turn_id: int, *, attempt: int) -> bool:
    """Ask the writer, which may be in another process, to stop; returns whether Redis took the request."""
    try:
        _client().set(stop_key(turn_id), attempt, ex=STOP_KEPT_SECONDS)
    except RedisError as error:
        _log_away(error)
        return False
    return True


def forget(turn_ids: Iterable[int]) -> None:
    """Remove what there is of turns that have been deleted; a writer that is still at it is told to stop."""
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
    """Of turns, each with its attempt, those whose writer holds no lease; None while that cannot be known.

    Redis has to have run for longer than a lease: one that has just started has forgotten them all. A replica that
    sentinels have just made the primary has run for long, and may have let them run out meanwhile.
    """
    if not attempts:
        return []
    if redis_clients.SentinelAddress.parse(settings.REDIS_URL):
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


def async_client(*, timeout: float = TIMEOUT_SECONDS) -> "AbstractAsyncContextManager[redis.asyncio.Redis]":
    """A client for the running event loop, closed at the end of the block."""
    return redis_clients.async_client(settings.REDIS_URL, seconds=timeout, connect_seconds=TIMEOUT_SECONDS)


def fields_of(event: AgentEvent | None) -> dict[Any, Any]:
    match event:
        case None:
            data: dict[str, Any] = {"ended": True}
        case ReasoningWritten(text=text, seconds=seconds):
            data = {"reasoning": [text, seconds]}
        case TextWritten(text=text):
            data = {"text": text}
        case ToolCalled(id=id_, name=name, input=input_):
            data = {"call": [id_, name, input_]}
        case ToolReturned(id=id_, summary=summary, is_error=is_error, stored=stored, place=place):
            data = {"result": [id_, summary, is_error, stored, place]}
    return {_FIELD: json.dumps(data, separators=(",", ":"))}


def entry_of(id_: bytes, fields: dict[bytes, bytes]) -> StreamEntry:
    """Raises `ValueError` for what no writer of this version wrote."""
    parsed = EventId.parse(id_.decode())
    if parsed is None:
        raise ValueError("not the id of an event")
    match json.loads(fields.get(_FIELD.encode(), b"null")):
        case {"ended": True}:
            return StreamEntry(parsed, None)
        case {"reasoning": [str(text), seconds]}:
            return StreamEntry(parsed, ReasoningWritten(text, seconds))
        case {"text": str(text)}:
            return StreamEntry(parsed, TextWritten(text))
        case {"call": [id_, name, input_]}:
            return StreamEntry(parsed, ToolCalled(id_, name, input_))
        case {"result": [id_, summary, is_error, stored, place]}:
            return StreamEntry(parsed, ToolReturned(id_, summary, is_error=is_error, stored=stored, place=place))
    raise ValueError("not an event")


def begins_at(entry: StreamEntry) -> int:
    return entry.id.position - (1 if entry.event is None else length_of(entry.event))


def _client() -> "redis.Redis":
    return _client_at(settings.REDIS_URL)


@lru_cache(maxsize=8)
def _client_at(url: str) -> "redis.Redis":
    return redis_clients.client(url, seconds=TIMEOUT_SECONDS)


def _log_away(error: RedisError) -> None:
    logger.warning("Redis is away, and answers are followed without it (%s)", type(error).__name__)
