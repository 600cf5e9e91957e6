"""How often one person or one address may ask: counted in Redis, for all processes together, before work is done.

A limit such as "10/minute" is a bucket that holds ten and refills evenly. When Redis is away nobody is refused.
"""

import hashlib
import ipaddress
import logging
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self, TypeVar

from django.conf import settings
from django.http import HttpRequest
from redis.exceptions import RedisError
from rest_framework.throttling import BaseThrottle

from core.buckets import Asked, Bucket
from core.errors import RateLimited

if TYPE_CHECKING:
    from rest_framework.request import Request

    AnyRequest = HttpRequest | Request

logger = logging.getLogger(__name__)
T = TypeVar("T")

SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}
# Of those in `settings.RATE_LIMITS`, what a view of the API that names none as its `throttle_scope` is under.
DEFAULT_LIMIT = "api"
# After a failure nobody asks Redis for so long.
REST_SECONDS = 5.0


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


@contextmanager
def counting(*wanted: tuple[object, ...]) -> Iterator[None]:
    """Count one use under several limits at once: for each its name in `settings.RATE_LIMITS`, and whom it is about.

    Raises `RateLimited`, having counted under none of them, when one is reached. Redis works that out while the block
    runs, which must be harmless: at its end it is waited for. A block that fails is counted as well.
    """
    buckets = [_bucket(rate, *each) for each in wanted if (rate := _rate(str(each[0]))) is not None]
    if not buckets or bypass.is_open():
        yield
        return
    asked = _unless_away(lambda: Asked(settings.REDIS_URL, buckets))
    yield
    if asked is not None and (wait := _unless_away(asked.answer)):
        raise RateLimited(retry_after=math.ceil(wait / 1000))


def take_all(*wanted: tuple[object, ...]) -> None:
    """`counting`, with nothing to do meanwhile."""
    with counting(*wanted):
        pass


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


def counting_for(name: str, *, user_id: int | None, address: str) -> AbstractContextManager[None]:
    """`counting` of a request against its person (for want of one, the address), and against its address in all."""
    return counting((name, address if user_id is None else user_id), (f"{name}_address", address))


def take_for(name: str, *, user_id: int | None, address: str) -> None:
    """`counting_for`, with nothing to do meanwhile."""
    with counting_for(name, user_id=user_id, address=address):
        pass


class RequestThrottle(BaseThrottle):
    """Counts a request under its view's `throttle_scope`."""

    def allow_request(self, request: "Request", view: Any) -> bool:
        limit = getattr(view, "throttle_scope", DEFAULT_LIMIT)
        take_for(limit, user_id=request.user.pk, address=client_address(request))
        return True


def _rate(name: str) -> Rate | None:
    text = settings.RATE_LIMITS.get(name)
    return Rate.parse(text) if text else None


def _bucket(rate: Rate, name: object, *subjects: object) -> Bucket:
    """An address or an email is not written into Redis, only a digest of it."""
    digest = hashlib.blake2b(repr(subjects).encode(), key=settings.SECRET_KEY.encode()[:64], digest_size=16)
    milliseconds = rate.seconds * 1000
    return Bucket(f"limit:{name}:{digest.hexdigest()}", interval=milliseconds / rate.count, room=milliseconds)


def _unless_away(ask: Callable[[], T]) -> T | None:
    """What Redis says; None, and nobody asks it for a while, when it says nothing."""
    try:
        return ask()
    except RedisError as error:
        bypass.open()
        logger.warning("Nobody is limited for the moment: Redis is away (%s)", type(error).__name__)
        return None


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
