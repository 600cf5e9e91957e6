"""Hashes passwords in a few separate threads with a short queue, without holding a database connection.

`User.check_password` and `User.set_password` use it, so every page, endpoint and command does. A hash is expensive on
purpose: without a limit, a burst of log-ins would take every core and every connection.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.contrib.auth.hashers import (
    UNUSABLE_PASSWORD_PREFIX,
    Argon2PasswordHasher,
    check_password,
    make_password,
)
from django.core.exceptions import ValidationError
from django.db import connections
from django.utils.translation import gettext_noop as _

from core.errors import RateLimited
from core.resilience import step_back
from core.validation import LONGEST_PASSWORD

P = ParamSpec("P")
T = TypeVar("T")

BUSY = _("Many people are logging in at this moment. Try again in a few seconds.")
RETRY_AFTER_SECONDS = 2


def give_connections_back() -> None:
    """Return this thread's connections to their pool; the next query takes a new one. An open transaction keeps its
    own.
    """
    for connection in connections.all(initialized_only=True):
        if "pool" in connection.settings_dict["OPTIONS"] and not connection.in_atomic_block:
            connection.close()


class Argon2idHasher(Argon2PasswordHasher):
    """Argon2id with the parameters of OWASP's Password Storage Cheat Sheet: 19 MiB, two passes, one lane.

    Django's default is eight lanes, each of which is a thread: one log-in would take every core.
    """

    time_cost = 2
    memory_cost = 19 * 1024
    parallelism = 1


class MaximumLengthValidator:
    """One of `AUTH_PASSWORD_VALIDATORS`, for every form with a new password."""

    def validate(self, password: str, user: object = None) -> None:
        if len(password) > LONGEST_PASSWORD:
            raise ValidationError(self.get_help_text(), code="password_too_long")

    def get_help_text(self) -> str:
        return f"Your password must have at most {LONGEST_PASSWORD:,} characters."


class HashingPool:
    def __init__(self, *, threads: int, queue: int) -> None:
        """`queue` is the number of calls that may wait while all threads are busy."""
        self._places = threading.BoundedSemaphore(threads + queue)
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="passwords", initializer=step_back)

    def refuse_when_full(self) -> None:
        """Raises `RateLimited` before any work for a log-in that would be refused anyway."""
        if not self._places.acquire(blocking=False):
            raise RateLimited(BUSY, retry_after=RETRY_AFTER_SECONDS)
        self._places.release()

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `function` in a thread of the pool. Raises `RateLimited` when the queue is full."""
        if not self._places.acquire(blocking=False):
            raise RateLimited(BUSY, retry_after=RETRY_AFTER_SECONDS)
        try:
            give_connections_back()
            return self._executor.submit(function, *args, **kwargs).result()
        finally:
            self._places.release()


# Stored in place of a hash: no password matches it.
NONE = UNUSABLE_PASSWORD_PREFIX

# Fewer in all than a web process has threads, so that a burst of log-ins leaves threads for other requests.
pool = HashingPool(threads=1, queue=16)


def encode(password: str) -> str:
    """A hash of the password. Raises `RateLimited`."""
    return pool.run(make_password, password)


def verify(password: str | None, encoded: str) -> tuple[bool, bool]:
    """Whether the password is correct, and if so, whether its hash must be renewed. Raises `RateLimited`."""
    outdated: list[str] = []
    is_right = pool.run(check_password, password, encoded, setter=outdated.append)
    return is_right, bool(outdated)
