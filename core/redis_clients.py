"""Creates every client of the Redis in REDIS_URL: a single server, or the primary that sentinels name.

`redis+sentinel://:password@sentinel-1:26379,sentinel-2:26379/name` names the primary: each new connection asks the
sentinels for its address. Sentinels and servers have the same password. No command is retried; each caller decides how
it works without Redis.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import redis
from redis import asyncio as redis_asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

SCHEME = "redis+sentinel://"
PORT = 26379


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """`places` has host and port of each sentinel. `name` is the sentinels' name for the primary."""

    places: tuple[tuple[str, int], ...]
    name: str
    login: dict[str, str]

    @classmethod
    def parse(cls, url: str) -> "SentinelAddress | None":
        """None for the address of a single server. Raises `ValueError`."""
        if not url.startswith(SCHEME):
            return None
        before, _, rest = url.removeprefix(SCHEME).rpartition("@")
        places, _, name = rest.partition("/")
        user, _, password = before.partition(":")
        login = {"username": unquote(user), "password": unquote(password)}
        parsed = [urlsplit(f"//{place}") for place in places.split(",")]
        if not name or "/" in name or not all(place.hostname for place in parsed):
            raise ValueError(
                f"REDIS_URL is {SCHEME}:password@host:port,host:port/name, the name as the sentinels know it."
            )
        return cls(
            tuple((str(place.hostname), place.port or PORT) for place in parsed),
            name,
            {key: value for key, value in login.items() if value},
        )


def client(url: str, *, seconds: float) -> "redis.Redis":
    """Thread-safe. `seconds` limits the wait for the connection and for each answer."""
    options: Any = {"socket_timeout": seconds, "socket_connect_timeout": seconds, "retry": Retry(NoBackoff(), 0)}
    address = SentinelAddress.parse(url)
    if address is None:
        return redis.Redis.from_url(url, **options)
    options |= address.login
    sentinels: Any = Sentinel  # without types
    found: redis.Redis = sentinels(address.places, sentinel_kwargs=options, **options).master_for(address.name)
    return found


@asynccontextmanager
async def async_client(
    url: str, *, seconds: float | None, connect_seconds: float
) -> "AsyncIterator[redis_asyncio.Redis]":
    """For the running event loop. `seconds` limits the wait for an answer; None means no limit."""
    waiting: Any = {"socket_connect_timeout": connect_seconds, "retry": AsyncRetry(NoBackoff(), 0)}
    address = SentinelAddress.parse(url)
    if address is None:
        async with redis_asyncio.Redis.from_url(url, socket_timeout=seconds, **waiting) as found:
            yield found
        return
    waiting |= address.login
    asking = {**waiting, "socket_timeout": connect_seconds}
    sentinels_of: Any = AsyncSentinel
    async with (
        sentinels_of(address.places, sentinel_kwargs=asking, socket_timeout=seconds, **waiting) as sentinels,
        sentinels.master_for(address.name) as found,
    ):
        yield found


def broker_settings(url: str) -> tuple[str, dict[str, Any]]:
    """The address in Celery's form, and the options of its transport."""
    address = SentinelAddress.parse(url)
    if address is None:
        # Celery's name for redis-py's unix:// is redis+socket://.
        return url.replace("unix://", "redis+socket://", 1), {}
    before = url.removeprefix(SCHEME).rpartition("@")[0]
    places = [f"sentinel://{before}@{host}:{port}" for host, port in address.places]
    return ";".join(places), {"master_name": address.name, "sentinel_kwargs": address.login}
