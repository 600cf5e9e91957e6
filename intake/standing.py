"""Whether whoever was let in still is: what outlasts its first check, a stream, asks again and again.

A session that was ended, by logging out or by a new password, is out, and so are a token that was revoked and a person
who was deactivated or is gone.
"""

import asyncio
import logging
from collections.abc import Callable

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user
from django.db import InterfaceError, OperationalError, connections
from django.http import HttpRequest

from intake.identity import SessionStore

logger = logging.getLogger(__name__)

CHECKED_EVERY_SECONDS = 2

StillIn = Callable[[], bool]


def session_is_good(session_key: str | None, *, user_id: int) -> bool:
    """Whether a request with this session would still be the person's, as Django decides it for every request."""
    request = HttpRequest()
    request.session = SessionStore(session_key)
    return bool(get_user(request).pk == user_id)


async def until_out(is_still_in: StillIn) -> None:
    """Returns within a few seconds of the moment from which they are not."""
    while True:
        await asyncio.sleep(CHECKED_EVERY_SECONDS)
        try:
            if not await is_in_now(is_still_in):
                return
        except (OperationalError, InterfaceError):
            logger.warning("A caller could not be checked again: the database is away")


async def is_in_now(is_still_in: StillIn) -> bool:
    """Raises `OperationalError` or `InterfaceError` while the database is away."""
    return await sync_to_async(_ask, thread_sensitive=False)(is_still_in)


def _ask(is_still_in: StillIn) -> bool:
    """The connection goes back at once: streams outlive any pool."""
    try:
        return is_still_in()
    finally:
        connections.close_all()
