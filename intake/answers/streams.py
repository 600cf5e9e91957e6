"""Shares an answer between processes through Redis: its events, the lease of its writer, and requests to stop.

All keys contain the turn's id. The ids of a stream's entries are those of the events (attempt and position), so Redis
itself refuses entries of a writer that another attempt has replaced. All keys expire. While Redis is unavailable
answers continue, and readers follow them in their own process or from the database.
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

# How long a stream is kept after its last event: while the answer is written, and once it is complete and in the
# database.
KEPT_SECONDS = 600
KEPT_AFTER_END_SECONDS = 120
STOP_KEPT_SECONDS = 60
# A request to stop is for one attempt at an answer, or for all.
ANY_ATTEMPT = 0
# The approximate number of entries kept in each stream. A follower who misses the first ones uses the database.
LONGEST_STREAM = 20_000
TIMEOUT_SECONDS = 1.0

PREFIX = "recollect:answer:"
_FIELD = "event"


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One entry of a stream: an event and its end position or, without an event, the end of the answer."""

    id: EventId
    event: AgentEvent | None


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
    """Raises `ValueError` for an entry that no writer of this version wrote."""
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
