"""Limits how often a user or an address may call, and how many calls of one user may run at once.

Calls are counted in Redis, for all processes together, before any work is done. A limit such as "10/minute" is a
sliding window. While Redis is unavailable each process counts for itself.

Running calls are counted per process: they occupy its threads and connections, and the count ends with the process.
"""

import hashlib
import ipaddress
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import limits
from django.conf import settings
from django.http import HttpRequest
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from redis.exceptions import RedisError
from rest_framework.throttling import BaseThrottle

from core import redis_clients
from core.errors import AuthenticationRequired, NotFound, RateLimited, RecollectError

if TYPE_CHECKING:
    from rest_framework.request import Request

    AnyRequest = HttpRequest | Request

logger = logging.getLogger(__name__)

# The limit in `settings.RATE_LIMITS` for API views without a `throttle_scope`.
DEFAULT_LIMIT = "api"
# The key of `request.META` that keeps the user of a running call.
RUNNING = "recollect.running"
# The longest wait for Redis, and how long Redis is not tried after a failure.
TIMEOUT_SECONDS = 0.1
REST_SECONDS = 5.0


class _Bypass:
    """Skips Redis for a while after it has not answered."""

    until = 0.0

    def is_open(self) -> bool:
        return time.monotonic() < self.until

    def open(self) -> None:
        self.until = time.monotonic() + REST_SECONDS


bypass = _Bypass()


def parse_rate(text: str) -> limits.RateLimitItem:
    """Parse a rate such as "10/minute"; raises `ValueError` for anything else."""
    rate = limits.parse(text)
    if rate.amount < 1:
        raise ValueError(f"{text!r} lets nobody in: leave it empty for no limit.")
    return rate


def take_all(*wanted: tuple[object, ...]) -> None:
    """Count one use under several limits: for each its name in `settings.RATE_LIMITS`, and its subjects.

    Raises `RateLimited` if one is reached; the use is then counted under none of them.
    """
    counted = [(parse_rate(rate), _key(*each)) for each in wanted if (rate := settings.RATE_LIMITS.get(str(each[0])))]
    if not counted:
        return
    if not bypass.is_open():
        try:
            _take(_limiter(settings.REDIS_URL), counted)
            return
        except RedisError as error:
            bypass.open()
            logger.warning("Each process counts requests for itself: Redis is away (%s)", type(error).__name__)
    _take(_limiter_of_this_process(), counted)


def _take(limiter: SlidingWindowCounterRateLimiter, counted: list[tuple[limits.RateLimitItem, str]]) -> None:
    # Another request may be counted between this check and the count; the later one is then refused after all.
    refused = next((each for each in counted[1:] if not limiter.test(*each)), None)
    refused = refused or next((each for each in counted if not limiter.hit(*each)), None)
    if refused:
        wait = limiter.get_window_stats(*refused).reset_time - time.time()
        raise RateLimited(retry_after=max(1, math.ceil(wait)))


def take_for(name: str, *, user_id: int | None, address: str) -> None:
    """Count a request against its user (without one, its address), and against its address in total."""
    take_all((name, address if user_id is None else user_id), (f"{name}_address", address))


def take_for_page(session_key: str | None, *, address: str) -> None:
    """Count a page outside the API, before the user is known: by its session, or without one by its address.

    A made-up session key starts its own count, so the address has a total limit too.
    """
    take_all(("page", session_key or address), ("page_address", address))


def counted_refusal(error: RecollectError, *, address: str) -> RecollectError:
    """Return the error to answer with: the given one, or `RateLimited` if too many calls of this address were refused.

    Counts only requests of unknown senders; all others are counted for their user.
    """
    if isinstance(error, AuthenticationRequired | NotFound):
        try:
            take_all(("refused_address", address))
        except RateLimited as limited:
            return limited
    return error


def take_for_password(email: str, *, address: str) -> None:
    """Count a login attempt per account and address, so that an attacker cannot lock the owner out."""
    take_all(("login", email.strip().lower(), address), ("login_address", address))


def take_for_mail(email: str, *, address: str) -> None:
    """Count an email per receiver and client, so that a stranger cannot use up what the receiver may ask for."""
    take_all(("mail", email.strip().lower(), address), ("mail_address", address))


def take_for_code(user_id: int, *, address: str) -> None:
    """Count an attempt at a second factor per account and client, and per account from all clients together.

    A client that guesses has the password. Six digits bear no unlimited number of clients, so there is a total; the
    owner, whom a crowd of clients can then keep waiting, ends it by a new password.
    """
    take_all(("code", user_id, address), ("code_account", user_id), ("login_address", address))


class RunningCalls:
    """Counts the running calls of each user in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[int] = Counter()

    def begin(self, user_id: int) -> None:
        """Raises `RateLimited` when `CONCURRENT_CALLS` are running."""
        most = settings.CONCURRENT_CALLS
        with self._lock:
            if 0 < most <= self._running[user_id]:
                raise RateLimited(f"{most} of your calls are running. Wait for one to end.", retry_after=1)
            self._running[user_id] += 1

    def end(self, user_id: int) -> None:
        with self._lock:
            self._running[user_id] -= 1
            if not self._running[user_id]:
                del self._running[user_id]

    def of(self, user_id: int) -> int:
        return self._running[user_id]


running_calls = RunningCalls()


@contextmanager
def running_call(user_id: int) -> Iterator[None]:
    """For calls outside Django's views. Raises `RateLimited`."""
    running_calls.begin(user_id)
    try:
        yield
    finally:
        running_calls.end(user_id)


def begin_call(request: "AnyRequest", *, user_id: int) -> None:
    """Count a request as running until `end_call`, which a middleware always calls. Raises `RateLimited`."""
    if RUNNING not in request.META:
        running_calls.begin(user_id)
        request.META[RUNNING] = user_id


def end_call(request: "AnyRequest") -> None:
    user_id = request.META.pop(RUNNING, None)
    if user_id is not None:
        running_calls.end(user_id)


def client_address(request: "AnyRequest") -> str:
    """The client's address, as far as the configured proxies can be trusted.

    Each proxy appends its client to X-Forwarded-For, and a client may have written to it as well. With n trusted
    proxies, the n-th entry from the end is the last one that they wrote. An IPv6 client has a whole network of
    addresses and is counted by it.
    """
    address = request.META.get("REMOTE_ADDR") or ""
    if settings.TRUSTED_PROXIES > 0:
        heard = [entry.strip() for entry in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
        if len(heard) >= settings.TRUSTED_PROXIES:
            address = heard[-settings.TRUSTED_PROXIES]
    return _network(address) or _network(request.META.get("REMOTE_ADDR") or "") or "unknown"


def network_of(address: str) -> str:
    """The network of a client's address, as /24 or, for IPv6, /48; empty if it is not an address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ""
    prefix = 24 if isinstance(parsed, ipaddress.IPv4Address) else 48
    return str(ipaddress.ip_network((address, prefix), strict=False))


class RequestThrottle(BaseThrottle):
    """Counts a request under its view's `throttle_scope`."""

    def allow_request(self, request: "Request", view: Any) -> bool:
        limit = getattr(view, "throttle_scope", DEFAULT_LIMIT)
        take_for(limit, user_id=request.user.pk, address=client_address(request))
        if request.user.pk is not None:
            begin_call(request, user_id=request.user.pk)
        return True


@lru_cache(maxsize=1)
def _limiter_of_this_process() -> SlidingWindowCounterRateLimiter:
    """Its windows expire automatically, so it holds only the requests of the current windows."""
    return SlidingWindowCounterRateLimiter(MemoryStorage())


@lru_cache(maxsize=8)
def _limiter(url: str) -> SlidingWindowCounterRateLimiter:
    pool = redis_clients.client(url, seconds=TIMEOUT_SECONDS).connection_pool
    return SlidingWindowCounterRateLimiter(RedisStorage("redis://", connection_pool=pool))


def _key(name: object, *subjects: object) -> str:
    """A digest, so that Redis holds neither addresses nor emails."""
    digest = hashlib.blake2b(repr(subjects).encode(), key=settings.SECRET_KEY.encode()[:64], digest_size=16)
    return f"{name}:{digest.hexdigest()}"


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
