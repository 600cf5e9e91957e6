"""Checks during a stream that its caller still has access.

Access ends with the session (log-out, a new password), with a revoked token, and with a deactivated or deleted user.

All streams of an event loop are checked in one round, on one connection, and streams of the same session or token once:
a thousand readers would otherwise query the database five hundred times a second.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user
from django.db import InterfaceError, OperationalError, connections
from django.http import HttpRequest

from intake.identity import SessionStore

logger = logging.getLogger(__name__)

CHECKED_EVERY_SECONDS = 2

StillIn = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class SessionCheck:
    """Two checks of the same session are equal, and so run once."""

    session_key: str | None
    user_id: int

    def __call__(self) -> bool:
        return session_is_good(self.session_key, user_id=self.user_id)


def session_is_good(session_key: str | None, *, user_id: int) -> bool:
    """Whether a request with this session would still be the user's, as Django decides it for every request."""
    request = HttpRequest()
    request.session = SessionStore(session_key)
    return bool(get_user(request).pk == user_id)


async def until_out(is_still_in: StillIn) -> None:
    """Returns within a few seconds after the access has ended."""
    await _rounds.setdefault(asyncio.get_running_loop(), _Rounds()).until_out(is_still_in)


async def is_in_now(is_still_in: StillIn) -> bool:
    """True while the database is unavailable."""
    return is_still_in not in await _who_is_out([is_still_in])


@dataclass(eq=False)
class _Rounds:
    """One per event loop; runs while streams wait."""

    _waiting: dict[StillIn, set[asyncio.Event]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None

    async def until_out(self, is_still_in: StillIn) -> None:
        is_out = asyncio.Event()
        self._waiting.setdefault(is_still_in, set()).add(is_out)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._go_round())
        try:
            await is_out.wait()
        finally:
            waiting = self._waiting[is_still_in]
            waiting.discard(is_out)
            if not waiting:
                del self._waiting[is_still_in]

    async def _go_round(self) -> None:
        while self._waiting:
            await asyncio.sleep(CHECKED_EVERY_SECONDS)
            for out in await _who_is_out(list(self._waiting)):
                for is_out in self._waiting.get(out, ()):
                    is_out.set()


_rounds: WeakKeyDictionary[asyncio.AbstractEventLoop, _Rounds] = WeakKeyDictionary()


async def _who_is_out(asked: Iterable[StillIn]) -> list[StillIn]:
    """Empty while the database is unavailable."""
    return await sync_to_async(_ask, thread_sensitive=False)(asked)


def _ask(asked: Iterable[StillIn]) -> list[StillIn]:
    """The connection is returned at once: streams last longer than a pool can wait."""
    out = []
    try:
        for is_still_in in asked:
            if not is_still_in():
                out.append(is_still_in)
    except (OperationalError, InterfaceError):
        logger.warning("Callers could not be checked again: the database is away")
    finally:
        connections.close_all()
    return out
