"""The gate of a web process: what one caller may have at once of its connections, its threads and its memory.

A key names who asks: an account, wherever it calls from, or else a stranger's address (of IPv6 its /64). A visitor is
a stranger: their sessions cost nothing. Each key has turns, and a queue of its own; it waits for nobody else's.

| who | turns of one key | together |
|---|---|---|
| an account | an eighth of the pool, at least two | the pool, but for four |
| an address of strangers | an eighth | a quarter, of the same |
| a log-in, by its address | one | two |
| a look-up of credentials, by its address | two, for a query each | two |
| `/healthz` | one | one |

A turn in which a request took longer than a tenth of a second comes back to its caller after three times as long, while
others are there: who asks for much leaves three quarters of the time to them. Nobody waits for it but the same caller.

So no request waits for a connection, and none is refused for want of one. The time of a request is bounded by
core/deadlines.py, and rates by core/rate_limits.py, because all processes count them together.
"""

import asyncio
import hashlib
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any
from weakref import WeakValueDictionary

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connections
from django.http.cookie import parse_cookie

from core.errors import AuthenticationRequired, RateLimited, Unavailable
from core.rate_limits import address_of, counted_refusal, known_account, most_at_once, refuse_unknown
from core.text import gettext_noop as _

Key = tuple[str, object]
Scope = MutableMapping[str, Any]
ACCOUNT, STRANGER, LOG_IN, LOOK_UP, HEALTH = "account", "stranger", "log-in", "look-up", "health"
PATHS = {"/healthz": HEALTH, **dict.fromkeys(("/login/", "/login/code/", "/login/passkey/", "/admin/login/"), LOG_IN)}
# Of so many credentials a process remembers whose they are, for so long.
MOST_KNOWN, KNOWN_SECONDS = 10_000, 300.0


class Credentials:
    """What a request sends to say who it is: a token in the header for it, or else a session's key; valid or not."""

    def __init__(self, scope: Scope) -> None:
        headers = scope["headers"]
        sent = b"".join(value for name, value in headers if name == b"authorization").decode("latin-1").strip()
        # Proxies use other schemes, and leave them in the header.
        self.authorization = sent if sent.lower().startswith(("bearer ", "token ")) else ""
        cookies = b"; ".join(value for name, value in headers if name == b"cookie").decode("latin-1")
        self.session = "" if self.authorization else parse_cookie(cookies).get(settings.SESSION_COOKIE_NAME, "")

    @property
    def digest(self) -> bytes | None:
        """None without any."""
        sent = self.authorization or self.session
        return hashlib.blake2b(sent.encode(errors="replace"), digest_size=16).digest() if sent else None


class Bytes:
    """Bytes of bodies that the process holds. Taking is refused, not waited for."""

    def __init__(self) -> None:
        self.total = 0
        self.of_key: Counter[Key] = Counter()

    @contextmanager
    def held(self, key: Key, *, most: int, most_of_key: int) -> Iterator[Callable[[int], None]]:
        """Yields a function that takes what a body has grown to; at the end all of it is given back.

        It raises `Unavailable`, which a client may repeat in a moment.
        """
        taken = 0

        def hold(length: int) -> None:
            nonlocal taken
            more = length - taken
            if self.total + more > most or self.of_key[key] + more > most_of_key:
                raise Unavailable(_("Too many requests with long bodies are under way. Try again in a moment."))
            self.total, taken = self.total + more, length
            self.of_key[key] += more

        try:
            yield hold
        finally:
            self.total -= taken
            self.of_key[key] -= taken
            if not self.of_key[key]:
                del self.of_key[key]


class _Queue:
    """The requests of one key: `admitted` of them wait or run, and `running` of them run."""

    def __init__(self, running: int, admitted: int) -> None:
        self.running = asyncio.Semaphore(running)
        self.admitted = asyncio.Semaphore(admitted or sys.maxsize)

    def end(self, turns: ExitStack) -> None:
        """Gives back turns that have rested. Who waits to call this keeps the queue."""
        turns.close()


class Gate:
    """`account_of` looks up whose credentials these are: whether they are valid, and of which account, if of one."""

    def __init__(self, account_of: Callable[[Credentials], tuple[bool, int | None]], *, connections: int) -> None:
        self._account_of = account_of
        self.bodies, self.files = Bytes(), Bytes()
        everybody = asyncio.Semaphore(max(1, connections - 4))
        # How many turns a key has, what it shares with others of its kind, and with all.
        self._shares = {
            ACCOUNT: (max(2, connections // 8), None, everybody),
            STRANGER: (max(1, connections // 8), asyncio.Semaphore(max(1, connections // 4)), everybody),
            LOG_IN: (1, asyncio.Semaphore(2), None),
            LOOK_UP: (2, asyncio.Semaphore(2), None),
            HEALTH: (1, asyncio.Semaphore(1), None),
        }
        # Only its requests refer to a queue.
        self._queues: WeakValueDictionary[Key, _Queue] = WeakValueDictionary()
        # The account of valid credentials, and when it was looked up. The least recently used first.
        self._known: dict[bytes, tuple[int | None, float]] = {}

    def known_key_of(self, scope: Scope) -> Key:
        """The key as far as it is known without asking the database."""
        digest = Credentials(scope).digest
        account, _at = self._known.get(digest, (None, 0.0)) if digest else (None, 0.0)
        return (STRANGER, address_of(scope)) if account is None else (ACCOUNT, account)

    async def key_of(self, scope: Scope) -> Key:
        """The key. Unknown credentials are looked up in a turn of their address, where made-up ones wait.

        Raises `RateLimited` if its queue is full, or at once if it has sent too many wrong ones.
        """
        address = address_of(scope)
        if (kind := PATHS.get(scope["path"])) is not None:
            return kind, address
        credentials = Credentials(scope)
        digest = credentials.digest
        if digest is None:
            return STRANGER, address
        key, known = self.known_key_of(scope), self._known.get(digest)
        if known is None:
            refuse_unknown(address)
        if known is None or known[1] < time.monotonic() - KNOWN_SECONDS:
            async with self.turn((LOOK_UP, address) if known is None else key):
                is_valid, account = await asyncio.to_thread(self._looked_up, credentials, address)
            key, known = (STRANGER, address) if account is None else (ACCOUNT, account), (account, time.monotonic())
            if not is_valid:
                self._known.pop(digest, None)
                return key
        self._known.pop(digest, None)
        self._known[digest] = known
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return key

    def _looked_up(self, credentials: Credentials, address: str) -> tuple[bool, int | None]:
        try:
            found = self._account_of(credentials)
        except (DatabaseError, InterfaceError):
            # The view says so.
            return False, None
        finally:
            connections.close_all()
        if not found[0] and credentials.session:
            # A wrong token is counted where it is refused; a session that has ended is shown the page of log-in.
            counted_refusal(AuthenticationRequired(), address=address)
        return found

    @asynccontextmanager
    async def turn(self, key: Key) -> AsyncIterator[None]:
        """Waits for a turn of this key. Raises `RateLimited` if its queue is full, after a second."""
        running, of_kind, of_all = self._shares[key[0]]
        most = most_at_once("calls" if key[0] == ACCOUNT else "calls_address")
        queue = self._queues.setdefault(key, _Queue(running, most))
        with ExitStack() as places:
            try:
                # How long a request waits for a place in its key's queue. It slows a client that asks again as soon as
                # it is refused.
                async with asyncio.timeout(1.0):
                    await queue.admitted.acquire()
            except TimeoutError:
                detail = _("%(count)s of your calls are running. Wait for one to end.")
                raise RateLimited(detail, count=most, retry_after=1) from None
            places.callback(queue.admitted.release)
            turns = places.enter_context(ExitStack())
            for each, stack in ((queue.running, turns), (of_kind, turns), (of_all, places)):
                if each is not None:
                    await each.acquire()
                    stack.callback(each.release)
            present.set((self, key))
            leave.set(places.close)
            known_account.set(int(str(key[1])) if key[0] == ACCOUNT else None)
            began = time.monotonic()
            try:
                yield
            finally:
                pause = 3 * (time.monotonic() - began - 0.1)
                if of_all is not None and pause > 0 and len(self._queues) > 1:
                    asyncio.get_running_loop().call_later(min(pause, 3.0), queue.end, turns.pop_all())


# The caller of this request, and of the tasks that it leaves behind; None outside the web process.
present: ContextVar[tuple[Gate, Key] | None] = ContextVar("present", default=None)
# Ends the turn of this request, which goes on to wait for another server and uses no connection meanwhile.
leave: ContextVar[Callable[[], object]] = ContextVar("leave", default=lambda: None)


def another_turn() -> AbstractAsyncContextManager[None]:
    """For work that goes on when its request has been answered: it waits for a turn of the same caller."""
    caller = present.get()
    return nullcontext() if caller is None else caller[0].turn(caller[1])
