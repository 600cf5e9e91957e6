"""Limits how often an account or an address may call, and how many streams it may have open.

Calls are counted in Redis, for all processes together, before any work is done. A limit such as "10/minute" is a
sliding window; the setting RATE_LIMITS is a factor on all limits here. While Redis is unavailable each process
counts for itself. What is known to be an account's never counts against its address, which others may share.

Open streams are counted in Redis too: each is a lease that its process renews, so a process that dies frees them.
What runs at once is bounded by each process (core/gate.py).
"""

import hashlib
import ipaddress
import logging
import math
import os
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import limits
from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.http import HttpRequest
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import SlidingWindowCounterRateLimiter
from redis.exceptions import RedisError
from rest_framework.throttling import BaseThrottle

from core import resilience
from core.errors import AuthenticationRequired, NotFound, RateLimited, RecollectError

if TYPE_CHECKING:
    from redis import Redis
    from rest_framework.request import Request

    AnyRequest = HttpRequest | Request

T = TypeVar("T")

logger = logging.getLogger(__name__)

# The limit of API views without a `throttle_scope`.
DEFAULT_LIMIT = "api"
# Per account, or for a stranger per address. They are generous, because agents are fast: they limit the effect of one
# runaway client.
RATES = {
    "api": "6000/minute",
    # Requests to the API without a valid token or session.
    "refused_address": "1200/minute",
    # Every page outside the API: by account, or of strangers by session, without one by address, and by address in all.
    "page": "1200/minute",
    "page_address": "12000/minute",
    "health_address": "1200/minute",
    "chat": "60/minute",
    # Files uploaded for messages.
    "attachment": "120/minute",
    "export": "30/hour",
    # The model's answers to all visitors together, because each one costs the installation money.
    "visitors": "2000/day",
    # For one account from one address; then for all accounts.
    "login": "10/minute",
    "login_address": "100/minute",
    "register_address": "60/hour",
    # OAuth clients that register or whose metadata are fetched: from all addresses, and from one.
    "client": "600/hour",
    "client_address": "60/hour",
    # Codes of a second factor: for one account from one client, and from all clients together.
    "code": "10/30minute",
    "code_account": "120/hour",
    # Emails that one client requests: to one address, and to all.
    "mail": "6/hour",
    "mail_address": "60/hour",
}
# How many an account may have at once, or strangers of one address: calls in a web process that run or wait for an
# earlier one; answers that are written, and open streams, in all processes together.
AT_ONCE = {"calls": 8, "calls_address": 20, "answers": 4, "streams": 20, "streams_address": 200}
# The account whose valid session or token this request has; the gate of the web process sets it.
known_account: ContextVar[int | None] = ContextVar("known_account", default=None)
# The longest wait for Redis, and how long Redis is not tried after a failure.
TIMEOUT_SECONDS, REST_SECONDS = 0.1, 5.0


class _Bypass:
    """Skips Redis for a while after it has not answered."""

    until = 0.0

    def is_open(self) -> bool:
        return time.monotonic() < self.until

    def open(self) -> None:
        self.until = time.monotonic() + REST_SECONDS


bypass = _Bypass()


def most_at_once(name: str) -> int:
    """0 is no limit."""
    return math.ceil(AT_ONCE.get(name, 0) * float(settings.RATE_LIMITS))


@lru_cache(maxsize=64)
def _scaled(rate: str, factor: float) -> limits.RateLimitItem:
    item = limits.parse(rate)
    return type(item)(max(1, round(item.amount * factor)), item.multiples)


def take_all(*requested: tuple[object, ...]) -> None:
    """Count one use under several limits: for each its name in `RATES`, and its subjects.

    Raises `RateLimited` if one is reached; the use is then counted under none of them.
    """
    factor = settings.RATE_LIMITS
    counted = [(_scaled(rate, factor), _key(*each)) for each in requested if (rate := RATES.get(str(each[0])))]
    if factor and counted:
        _count(counted)


def _count(counted: Sequence[tuple[limits.RateLimitItem, str]], cost: int = 1) -> None:
    if not bypass.is_open():
        try:
            _take(_limiter(settings.REDIS_URL), counted, cost)
            return
        except RedisError as error:
            bypass.open()
            logger.warning("Each process counts requests for itself: Redis is away (%s)", type(error).__name__)
    _take(_limiter_of_this_process(), counted, cost)


def _take(
    limiter: SlidingWindowCounterRateLimiter, counted: Sequence[tuple[limits.RateLimitItem, str]], cost: int
) -> None:
    # Another request may be counted between this check and the count; the later one is then refused after all.
    refused = next((each for each in counted[1:] if not limiter.test(*each, cost=cost)), None)
    refused = refused or next((each for each in counted if not limiter.hit(*each, cost=cost)), None)
    if refused:
        wait = limiter.get_window_stats(*refused).reset_time - time.time()
        raise RateLimited(retry_after=max(1, math.ceil(wait)))


def take_for(name: str, *, user_id: int | None, address: str) -> None:
    """Count a request against its user, or without one against its address."""
    take_all((name, address if user_id is None else user_id))


def take_bytes_of_visitor(size: int, *, address: str) -> None:
    """Count the bytes of a file that a visitor uploads: in an hour 50 MB of one address, and 1 GB of all of them.

    Their files without a message are removed after an hour, so this bounds what strangers store.
    """
    if settings.RATE_LIMITS:
        kilobytes = size // 1024 + 1
        lids = (("visitor_bytes", address), 50 * 1024), (("visitor_bytes",), 1024**2)
        counted = [(limits.RateLimitItemPerHour(most), _key(*key)) for key, most in lids]
        _count(counted, kilobytes)


def note_file_of_visitor(file_id: UUID, *, address: str) -> None:
    """Remember where it came from for an hour, as long as the file may wait, so that its reading is counted there."""
    _with_redis(lambda redis: redis.set(_key("file", file_id), _key("reading", address), ex=3600))


def count_reading(file_id: UUID, seconds: float) -> None:
    """Count the seconds that reading the file took against the visitors' address that it came from."""

    def count(redis: "Redis") -> None:
        address: Any = redis.get(_key("file", file_id))
        if address:
            redis.incrbyfloat(address, seconds)
            redis.expire(address, 3600)

    _with_redis(count)


def seconds_of_reading(file_ids: Sequence[UUID]) -> dict[UUID, float]:
    """How long the files of each one's address have been read within the hour; 0 without Redis."""

    def seconds(redis: "Redis") -> list[float]:
        addresses: Any = redis.mget([_key("file", each) for each in file_ids])
        found: Any = redis.mget([address or b"-" for address in addresses])
        return [float(each or 0) for each in found]

    found = _with_redis(seconds) if file_ids else None
    return dict(zip(file_ids, found or [0.0] * len(file_ids), strict=True))


def _with_redis(work: "Callable[[Redis], T]") -> "T | None":
    """None while Redis is away."""
    try:
        return work(_stream_client(settings.REDIS_URL))
    except RedisError as error:
        logger.warning("The reading of files cannot be counted: Redis is away (%s)", type(error).__name__)
        return None


def take_for_page(session_key: str | None, *, address: str) -> None:
    """Count a page outside the API: by its account, or a stranger's by its session, or without one by its address.

    A made-up session key starts its own count, so strangers' addresses have a total limit too.
    """
    account = known_account.get()
    if account is not None:
        take_all(("page", account))
    else:
        take_all(("page", session_key or address), ("page_address", address))


# Addresses that have sent too many wrong credentials, and until when. Each process learns of it by itself.
_refused_until: dict[str, float] = {}


def refuse_unknown(address: str) -> None:
    """Raises `RateLimited` before unknown credentials are looked up, if this address has sent too many wrong ones."""
    left = _refused_until.get(address, 0.0) - time.monotonic()
    if left > 0:
        raise RateLimited(retry_after=math.ceil(left))
    _refused_until.pop(address, None)


def counted_refusal(error: RecollectError, *, address: str) -> RecollectError:
    """Return the error to answer with: the given one, or `RateLimited` if too many calls of this address were refused.

    Counts only requests of unknown senders; all others are counted for their user.
    """
    if isinstance(error, AuthenticationRequired | NotFound):
        try:
            take_all(("refused_address", address))
        except RateLimited as limited:
            _refused_until[address] = time.monotonic() + (limited.retry_after or 1)
            return limited
    return error


def take_for_password(email: str, *, address: str) -> None:
    """Count a login attempt per account and address, so that an attacker cannot lock the owner out."""
    take_all(("login", email.strip().lower(), address), ("login_address", address))


# A stream whose process has not renewed it for so long counts as closed.
STREAM_LEASE_SECONDS = 60.0
RENEWALS = 4
# One step, so that two processes cannot both take the last place. Expired leases go first.
_TAKE_PLACES = """
for index, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', ARGV[1])
  local most = tonumber(ARGV[3 + index])
  if most > 0 and redis.call('ZCARD', key) >= most then return index end
end
for _, key in ipairs(KEYS) do
  redis.call('ZADD', key, ARGV[2], ARGV[3])
  redis.call('PEXPIRE', key, ARGV[ #ARGV ])
end
return 0
"""


class StreamLease:
    """One open stream. It ends with `end`, with the response that has it, or when nothing refers to it any more."""

    _events: AsyncIterator[bytes]

    def __init__(self, end: Callable[[], None]) -> None:
        self.end = weakref.finalize(self, end)

    def over(self, events: AsyncIterator[bytes]) -> "StreamLease":
        """The lease as the body of a response. Django closes it with the response, however that ends."""
        self._events = events
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._events)

    def close(self) -> None:
        self.end()


class OpenStreams:
    """The open streams of this process, with a thread that renews their leases in Redis and gives them back.

    While Redis is unavailable each process counts for itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, tuple[str, ...]] = {}
        self._ended: list[tuple[str, tuple[str, ...]]] = []
        self._requested = threading.Event()
        self._thread_of: int | None = None
        self._renewed_at = time.monotonic()

    def begin(self, *, user_id: int | None, address: str) -> StreamLease:
        """Raises `RateLimited` if the user or the address has too many."""
        limits_of = {}
        if known_account.get() is None:
            limits_of[_key("streams_address", address)] = most_at_once("streams_address"), "this address"
        if user_id is not None:
            limits_of[_key("streams", user_id)] = most_at_once("streams"), "you"
        name, keys = secrets.token_hex(8), tuple(limits_of)
        full = self._take(name, {key: most for key, (most, _) in limits_of.items()})
        if full is not None:
            most, whose = limits_of[full]
            detail = f"{most} streams are open for {whose}. Close one, for example a page in another tab."
            raise RateLimited(detail, retry_after=math.ceil(STREAM_LEASE_SECONDS / RENEWALS))
        with self._lock:
            self._open[name] = keys
            if self._thread_of != os.getpid():
                threading.Thread(target=self._run, name="leases of streams", daemon=True).start()
                self._thread_of = os.getpid()
        return StreamLease(partial(self._end, name))

    def _take(self, name: str, most_of: dict[str, int]) -> str | None:
        """The key that is full; None if the stream has got its places."""
        if not bypass.is_open():
            now = time.time()
            times = now, now + STREAM_LEASE_SECONDS, name
            kept = int(2000 * STREAM_LEASE_SECONDS)
            try:
                client = _stream_client(settings.REDIS_URL)
                found: Any = client.eval(_TAKE_PLACES, len(most_of), *most_of, *times, *most_of.values(), kept)
                return list(most_of)[int(found) - 1] if int(found) else None
            except RedisError as error:
                bypass.open()
                logger.warning("Each process counts streams for itself: Redis is away (%s)", type(error).__name__)
        with self._lock:
            here = Counter(key for keys in self._open.values() for key in keys)
        return next((key for key, most in most_of.items() if 0 < most <= here[key]), None)

    def _end(self, name: str) -> None:
        # A finaliser may run in a thread that has this lock: it takes none.
        keys = self._open.pop(name, None)
        if keys is not None:
            self._ended.append((name, keys))
            self._requested.set()

    def _run(self) -> None:
        while True:
            is_due = not self._requested.wait(STREAM_LEASE_SECONDS / RENEWALS)
            self._requested.clear()
            try:
                self._give_back()
                if is_due or time.monotonic() > self._renewed_at + STREAM_LEASE_SECONDS / RENEWALS:
                    self._renew()
            except RedisError as error:
                logger.warning("Leases of streams cannot be renewed: Redis is away (%s)", type(error).__name__)
                time.sleep(1)

    def _give_back(self) -> None:
        while self._ended:
            name, keys = self._ended[0]
            with _stream_client(settings.REDIS_URL).pipeline(transaction=False) as pipeline:
                for key in keys:
                    pipeline.zrem(key, name)
                pipeline.execute()
            del self._ended[0]

    def _renew(self) -> None:
        self._renewed_at = time.monotonic()
        until = time.time() + STREAM_LEASE_SECONDS
        with self._lock:
            present = list(self._open.items())
        with _stream_client(settings.REDIS_URL).pipeline(transaction=False) as pipeline:
            for name, keys in present:
                for key in keys:
                    pipeline.zadd(key, {name: until})
                    pipeline.pexpire(key, int(2000 * STREAM_LEASE_SECONDS))
            pipeline.execute()


open_streams = OpenStreams()


def begin_stream(request: "AnyRequest", *, user_id: int | None) -> StreamLease:
    """Count a stream until its lease ends. Raises `RateLimited`."""
    return open_streams.begin(user_id=user_id, address=client_address(request))


def take_for_mail(email: str, *, address: str) -> None:
    """Count an email per receiver and client, so that a stranger cannot use up what the receiver may ask for."""
    take_all(("mail", email.strip().lower(), address), ("mail_address", address))


def take_for_code(user_id: int, *, address: str) -> None:
    """Count an attempt at a second factor per account and client, and per account from all clients together.

    A client that guesses has the password. Six digits bear no unlimited number of clients, so there is a total; the
    owner, whom a crowd of clients can then keep waiting, ends it by a new password.
    """
    take_all(("code", user_id, address), ("code_account", user_id), ("login_address", address))


def client_address(request: "AnyRequest") -> str:
    """The client's address, as far as the configured proxies can be trusted.

    Each proxy appends its client to X-Forwarded-For, and a client may have written to it as well. With n trusted
    proxies, the n-th entry from the end is the last one that they wrote. An IPv6 client has a whole network of
    addresses and is counted by it.
    """
    return _client(request.META.get("REMOTE_ADDR") or "", request.META.get("HTTP_X_FORWARDED_FOR", ""))


def address_of(scope: "MutableMapping[str, Any]") -> str:
    """The same address, for an ASGI connection that is no request of Django's yet."""
    forwarded = b",".join(value for name, value in scope["headers"] if name == b"x-forwarded-for")
    return _client((scope.get("client") or ("",))[0] or "", forwarded.decode("latin-1"))


def _client(peer: str, forwarded: str) -> str:
    address = peer
    if settings.TRUSTED_PROXIES > 0:
        heard = [entry.strip() for entry in forwarded.split(",")]
        if len(heard) >= settings.TRUSTED_PROXIES:
            address = heard[-settings.TRUSTED_PROXIES]
    return _network(address) or _network(peer) or "unknown"


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
        # Visitors are counted by their address: one without cookies is a new one each time.
        user_id = None if getattr(request.user, "is_visitor", True) else request.user.pk
        take_for(limit, user_id=user_id, address=client_address(request))
        return True


@lru_cache(maxsize=1)
def _limiter_of_this_process() -> SlidingWindowCounterRateLimiter:
    """Its windows expire automatically, so it holds only the requests of the current windows."""
    return SlidingWindowCounterRateLimiter(MemoryStorage())


@lru_cache(maxsize=8)
def _stream_client(url: str) -> "Redis":
    # A stream is begun seldom, and its count is worth a longer wait.
    return resilience.client(url, seconds=1.0)


@lru_cache(maxsize=8)
def _limiter(url: str) -> SlidingWindowCounterRateLimiter:
    pool = resilience.client(url, seconds=TIMEOUT_SECONDS).connection_pool
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


@register
def check_rate_limits(**kwargs: Any) -> list[CheckMessage]:
    if settings.RATE_LIMITS >= 0:
        return []
    hint = "Set it to a factor such as 2, or to 0 for no limit."
    return [Error("RATE_LIMITS is below 0.", hint=hint, id="core.E005")]
