"""Checks during a stream that its caller still has access.

Access ends with the session (log-out, a new password), with a revoked token, and with a deactivated or deleted user.

All streams of an event loop are checked in one round, on one connection, and streams of the same session or token once:
a thousand readers would otherwise query the database five hundred times a second.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user
from django.db import InterfaceError, OperationalError, connections
from django.http import HttpRequest

from intake.identity import SessionStore, good_sessions

logger = logging.getLogger(__name__)

CHECKED_EVERY_SECONDS = 2

StillIn = Callable[[], bool]
# Of checks of one kind, those whose callers still have access: in one query.
GoodAmong = Callable[[Collection[StillIn]], set[StillIn]]


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
    """One query for all checks of a kind. The connection is returned at once, for the next round."""
    by_kind: dict[Any, list[StillIn]] = {}
    for each in asked:
        by_kind.setdefault(getattr(type(each), "good_among", None), []).append(each)
    try:
        return [each for good_among, checks in by_kind.items() for each in _out_of(good_among, checks)]
    except (OperationalError, InterfaceError):
        logger.warning("Callers could not be checked again: the database is away")
        return []
    finally:
        connections.close_all()


def _out_of(good_among: GoodAmong | None, checks: list[StillIn]) -> list[StillIn]:
    if good_among is not None and len(checks) > 1:
        try:
            good = good_among(checks)
            return [each for each in checks if each not in good]
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            logger.exception("Callers could not be checked together, and are checked one by one")
    return [each for each in checks if not _is_in(each)]


def _is_in(is_still_in: StillIn) -> bool:
    try:
        return is_still_in()
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        # A caller about whom nothing can be found out is no longer let in; the round goes on for the others.
        logger.exception("A caller could not be checked again")
        return False
