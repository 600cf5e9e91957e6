"""Revocation: ends whatever lasts longer than a request within five seconds after its caller has lost access.

Answers, the streams of changes and of imports, downloads, and MCP over HTTP and over pipes all ask here and nowhere
else. Access ends with the session (log-out, a new password), with a revoked or expired token or connection, and with a
deactivated or deleted user.

All streams of an event loop are checked in one round, on one connection, and streams of the same session or token once:
a thousand readers would otherwise query the database five hundred times a second.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user
from django.db import InterfaceError, OperationalError, connections
from django.http import HttpRequest
from django.utils import timezone

from intake.accounts.identity import SessionStore, good_sessions

if TYPE_CHECKING:
    from intake.accounts.identity import AnyRequest

logger = logging.getLogger(__name__)

CHECKED_EVERY_SECONDS = 2

IsAuthorized = Callable[[], bool]
# Of checks of one kind, those whose callers still have access: in one query.
GoodAmong = Callable[[Collection[IsAuthorized]], set[IsAuthorized]]


@dataclass(frozen=True, slots=True)
class SessionCheck:
    """Two checks of the same session are equal, and so run once."""

    session_key: str | None
    user_id: int

    def __call__(self) -> bool:
        return session_is_good(self.session_key, user_id=self.user_id)

    @classmethod
    def good_among(cls, checks: "Collection[SessionCheck]") -> "set[SessionCheck]":
        """In one query."""
        good = good_sessions([(each.session_key, each.user_id) for each in checks])
        return {each for each in checks if (each.session_key, each.user_id) in good}


def session_is_good(session_key: str | None, *, user_id: int) -> bool:
    """Whether a request with this session would still be the user's, as Django decides it for every request."""
    request = HttpRequest()
    request.session = SessionStore(session_key)
    return bool(get_user(request).pk == user_id)


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """`token` comes from the API's authentication class. Two checks of the same token are equal, and so run once."""

    token: Any

    def __call__(self) -> bool:
        return self in self.good_among([self])

    @classmethod
    def good_among(cls, checks: "Collection[TokenCheck]") -> "set[TokenCheck]":
        """In one query for each kind of token."""
        by_kind: dict[Any, list[TokenCheck]] = {}
        for each in checks:
            by_kind.setdefault(type(each.token), []).append(each)
        now, good = timezone.now(), set()
        for kind, alike in by_kind.items():
            valid = kind.still_valid([each.token for each in alike], now=now)
            good |= {each for each in alike if each.token in valid}
        return good


def check_of(request: "AnyRequest") -> IsAuthorized:
    """Whether the caller of this authenticated request would still be let in: by its token, or else by its session."""
    token = getattr(request, "auth", None)
    if token is not None:
        return TokenCheck(token)
    user_id: int | None = request.user.pk
    return SessionCheck(request.session.session_key, -1 if user_id is None else user_id)


class Revoked(Exception):
    """Breaks a download off. A clean end would pass a part off as the whole."""


async def while_authorized(
    pieces: AsyncIterator[bytes],
    is_authorized: IsAuthorized | None,
    *,
    breaks_off: bool = False,
    keep_alive: tuple[float | None, bytes] = (None, b""),
) -> AsyncGenerator[bytes, None]:
    """The pieces of a response until its caller loses access; None asks nothing.

    Raises `Revoked` then, if it `breaks_off`. `keep_alive`: after so many seconds of silence, this piece: a proxy may
    close a connection on which nothing happens.
    """
    guard = asyncio.create_task(_revocation_of(is_authorized))
    following, (seconds, waiting) = asyncio.ensure_future(anext(pieces, None)), keep_alive
    try:
        while not guard.done():
            done, _ = await asyncio.wait({following, guard}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                yield waiting
            elif not guard.done():
                if (piece := following.result()) is None:
                    break
                yield piece
                following = asyncio.ensure_future(anext(pieces, None))
        if breaks_off and guard.done():
            raise Revoked
    finally:
        guard.cancel()
        if not following.done():
            following.cancel()
            await asyncio.wait({following})
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


async def _revocation_of(is_authorized: IsAuthorized | None) -> None:
    if is_authorized is None:
        await asyncio.Event().wait()
    else:
        await wait_for_revocation(is_authorized)


async def wait_for_revocation(is_authorized: IsAuthorized) -> None:
    """Returns within a few seconds after the access has ended."""
    await _checks.setdefault(asyncio.get_running_loop(), _Checks()).wait_for_revocation(is_authorized)


async def is_authorized_now(is_authorized: IsAuthorized) -> bool:
    """True while the database is unavailable."""
    return is_authorized not in await _revoked([is_authorized])


@dataclass(eq=False)
class _Checks:
    """One per event loop; runs while streams wait."""

    _waiting: dict[IsAuthorized, set[asyncio.Event]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    async def wait_for_revocation(self, is_authorized: IsAuthorized) -> None:
        is_revoked = asyncio.Event()
        self._waiting.setdefault(is_authorized, set()).add(is_revoked)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._go_round())
        try:
            await is_revoked.wait()
        finally:
            waiting = self._waiting[is_authorized]
            waiting.discard(is_revoked)
            if not waiting:
                del self._waiting[is_authorized]

    async def _go_round(self) -> None:
        while self._waiting:
            await asyncio.sleep(CHECKED_EVERY_SECONDS)
            for out in await _revoked(list(self._waiting)):
                for is_revoked in self._waiting.get(out, ()):
                    is_revoked.set()


_checks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Checks] = WeakKeyDictionary()


async def _revoked(asked: Iterable[IsAuthorized]) -> list[IsAuthorized]:
    """Empty while the database is unavailable."""
    return await sync_to_async(_ask, thread_sensitive=False)(asked)


def _ask(asked: Iterable[IsAuthorized]) -> list[IsAuthorized]:
    """One query for all checks of a kind. The connection is returned at once, for the next round."""
    by_kind: dict[Any, list[IsAuthorized]] = {}
    for each in asked:
        by_kind.setdefault(getattr(type(each), "good_among", None), []).append(each)
    try:
        return [each for good_among, checks in by_kind.items() for each in _out_of(good_among, checks)]
    except (OperationalError, InterfaceError):
        logger.warning("Callers could not be checked again: the database is away")
        return []
    finally:
        connections.close_all()


def _out_of(good_among: GoodAmong | None, checks: list[IsAuthorized]) -> list[IsAuthorized]:
    if good_among is not None and len(checks) > 1:
        try:
            good = good_among(checks)
            return [each for each in checks if each not in good]
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            logger.exception("Callers could not be checked together, and are checked one by one")
    return [each for each in checks if not _is_in(each)]


def _is_in(is_authorized: IsAuthorized) -> bool:
    try:
        return is_authorized()
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        # A caller about whom nothing can be found out is no longer let in; the round goes on for the others.
        logger.exception("A caller could not be checked again")
        return False
