"""How often one person or one address may ask: counted in Redis, for all processes together, before work is done.

A limit such as "10/minute" is a bucket that holds ten and refills evenly (the generic cell rate algorithm, ITU-T I.371:
one number for each bucket, the moment at which it will be full again). When Redis is away nobody is refused.
"""

import hashlib
import ipaddress
import logging
import math
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

import redis
from django.conf import settings
from django.http import HttpRequest
from redis.backoff import NoBackoff
from redis.retry import Retry
from rest_framework.throttling import BaseThrottle

from intake.errors import RateLimited

if TYPE_CHECKING:
    from rest_framework.request import Request

    AnyRequest = HttpRequest | Request

logger = logging.getLogger(__name__)

SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
# The most that a request waits for Redis; after a failure nobody asks it for a while.
TIMEOUT_SECONDS = 0.1
REST_SECONDS = 5.0

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


@dataclass(frozen=True, slots=True)
class Rate:
    count: int
    seconds: int

    @classmethod
    @lru_cache(maxsize=64)
    def parse(cls, text: str) -> Self:
        """From "10/minute"; raises `ValueError` for anything else."""
        match = re.fullmatch(r"([1-9]\d*)/(second|minute|hour|day)", text)
        if match is None:
            raise ValueError(f"{text!r} is no rate: write a number and a unit, such as 10/minute.")
        return cls(int(match[1]), SECONDS[match[2]])


class _Bypass:
    """Keeps requests from asking a Redis that did not answer a moment ago."""

    until = 0.0

    def is_open(self) -> bool:
        return time.monotonic() < self.until

    def open(self) -> None:
        self.until = time.monotonic() + REST_SECONDS


bypass = _Bypass()


def take_all(*wanted: tuple[object, ...]) -> None:
    """Count one use under several limits at once: for each its name in `settings.RATE_LIMITS`, and whom it is about.

    Raises `RateLimited`, having counted under none of them, when one is reached.
    """
    limited = [(_key(*each), rate) for each in wanted if (rate := _rate(str(each[0]))) is not None]
    if not limited or bypass.is_open():
        return
    try:
        wait = _take([key for key, _ in limited], [rate for _, rate in limited])
    except redis.RedisError as error:
        bypass.open()
        logger.warning("Nobody is limited for the moment: Redis is away (%s)", type(error).__name__)
        return
    if wait:
        raise RateLimited(retry_after=math.ceil(wait / 1000))


def take_for_password(email: str, *, address: str) -> None:
    """Count a try at a password: for one account from one address, so that nobody can lock anybody else out."""
    take_all(("login", email.strip().lower(), address), ("login_address", address))


def client_address(request: "AnyRequest") -> str:
    """Where a request came from, as far as the configured proxies are to be believed.

    Each proxy appends whom it heard from to X-Forwarded-For, and whoever asks may have written there before: with n
    proxies of one's own, the n-th entry from the end is the last that one of them wrote. An IPv6 client has a whole
    network of addresses and is counted by it.
    """
    address = request.META.get("REMOTE_ADDR") or ""
    if settings.TRUSTED_PROXIES > 0:
        heard = [entry.strip() for entry in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
        if len(heard) >= settings.TRUSTED_PROXIES:
            address = heard[-settings.TRUSTED_PROXIES]
    return _network(address) or _network(request.META.get("REMOTE_ADDR") or "") or "unknown"


def take_for(name: str, *, user_id: int | None, address: str) -> None:
    """Count a request against its person (for want of one, the address), and against its address in all."""
    take_all((name, address if user_id is None else user_id), (f"{name}_address", address))


class RequestThrottle(BaseThrottle):
    """DRF's default throttle: `RATE_LIMITS["api"]`, or what a view names as its `throttle_scope`."""

    def allow_request(self, request: "Request", view: Any) -> bool:
        take_for(getattr(view, "throttle_scope", "api"), user_id=request.user.pk, address=client_address(request))
        return True


def _rate(name: str) -> Rate | None:
    text = settings.RATE_LIMITS.get(name)
    return Rate.parse(text) if text else None


def _key(name: object, *subjects: object) -> str:
    """An address or an email is not written into Redis, only a digest of it."""
    digest = hashlib.blake2b(repr(subjects).encode(), key=settings.SECRET_KEY.encode()[:64], digest_size=16)
    return f"limit:{name}:{digest.hexdigest()}"


def _take(keys: list[str], rates: Iterable[Rate]) -> int:
    arguments = [number for rate in rates for number in (rate.seconds * 1000 / rate.count, rate.seconds * 1000)]
    return int(_script(settings.REDIS_URL)(keys=keys, args=arguments))


@lru_cache(maxsize=4)
def _script(url: str) -> Any:
    # Without a second try: a request waits for it.
    client = redis.Redis.from_url(
        url,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
    return client.register_script(TAKE)


@lru_cache(maxsize=1024)
def _network(text: str) -> str | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), 64), strict=False).network_address)
    return str(address)
