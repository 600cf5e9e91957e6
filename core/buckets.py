"""The buckets of `core.rate_limits`, in Redis: what is asked is sent at once, and the answer read when it is needed.

A bucket is one number, the moment at which it will be full again (the generic cell rate algorithm, ITU-T I.371). Every
request of an agent waits for it, and redis-py's client with its pool of connections takes as long to ask as Redis to
answer. So each thread has a connection, redis-py's own, to itself.
"""

import hashlib
from collections.abc import Sequence
from threading import local
from typing import Any, NamedTuple

from redis.backoff import NoBackoff
from redis.connection import ConnectionPool
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import NoScriptError
from redis.retry import Retry

# The most that a request waits for Redis.
TIMEOUT_SECONDS = 0.1

# Takes from all the buckets or, if one is empty, from none; returns the milliseconds until there is something in all.
TAKE = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local wait, full = 0, {}
for i, key in ipairs(KEYS) do
  local interval, room = tonumber(ARGV[2 * i - 1]), tonumber(ARGV[2 * i])
  local full_at = math.max(tonumber(redis.call('GET', key)) or now, now) + interval
  wait = math.max(wait, full_at - room - now)
  full[i] = full_at
end
if wait > 0 then return math.ceil(wait) end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, full[i], 'PX', math.ceil(full[i] - now) + 1)
end
return 0
"""
_NAME = hashlib.sha1(TAKE.encode(), usedforsecurity=False).hexdigest()


class Bucket(NamedTuple):
    """Something is added every `interval`, and it is full after `room`; both in milliseconds."""

    key: str
    interval: float
    room: float


class Asked:
    """One from all of some buckets, of a Redis that may not have answered yet. Raises redis-py's `RedisError`s."""

    def __init__(self, url: str, buckets: Sequence[Bucket]) -> None:
        numbers = [number for bucket in buckets for number in (bucket.interval, bucket.room)]
        self._arguments = [len(buckets), *(bucket.key for bucket in buckets), *numbers]
        self._url = url
        # Nobody else's until the answer has been read: one that never is takes its connection along.
        self._connection = _mine.by_url.pop(url, None) or _connection(url)
        # Redis may have been started anew since it was last asked.
        self._may_be_dead = self._connection.is_connected
        self._send("EVALSHA", _NAME)

    def answer(self) -> int:
        """The milliseconds until there is something in all of them; 0 when it was taken."""
        try:
            milliseconds = self._read()
        except NoScriptError:
            self._send("EVAL", TAKE)
            milliseconds = self._read()
        except Lost:
            if not self._may_be_dead:
                raise
            self._send("EVAL", TAKE)
            milliseconds = self._read()
        _mine.by_url[self._url] = self._connection
        return milliseconds

    def _send(self, command: str, script: str) -> None:
        try:
            self._connection.send_command(command, script, *self._arguments)
        except Lost:
            if not self._may_be_dead:
                raise
            self._may_be_dead = False
            self._connection.send_command(command, script, *self._arguments)

    def _read(self) -> int:
        return int(self._connection.read_response())


class _Mine(local):
    """This thread's connections that nobody waits at."""

    def __init__(self) -> None:
        self.by_url: dict[str, Any] = {}


_mine = _Mine()


def _connection(url: str) -> Any:
    # Without a second try: a request waits for it.
    waiting = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
    return ConnectionPool.from_url(url, **waiting, retry=Retry(NoBackoff(), 0)).make_connection()
