"""Runs database work for the event loop, and stops it when the caller has disconnected."""

from collections.abc import Callable
from contextlib import ExitStack
from threading import Lock
from typing import Any, Generic, TypeVar

import anyio
import psycopg
from anyio import to_thread
from django.db import connections

T = TypeVar("T")


class Abandoned(BaseException):
    """Raised inside cancelled work at its next query; no code reports it.

    Not an `Exception`, like a cancellation, so that code which handles and logs failures lets it pass.
    """


async def run_in_thread(work: Callable[[], T]) -> T:
    """The result of `work`, which runs in a thread and returns its database connection at the end.

    When the caller is cancelled,
    1. the running statement is cancelled, and its transaction rolled back;
    2. later statements are refused, so that work outside the database ends at its next query;
    3. a result, if there is one, is dropped.
    """
    stoppable = _Stoppable(work)
    try:
        return await to_thread.run_sync(stoppable.run, abandon_on_cancel=True)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            # Outside the limit, whose threads may all be waiting for statements that are to be stopped.
            await to_thread.run_sync(stoppable.stop, limiter=anyio.CapacityLimiter(1))
        raise


class _Stoppable(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        # Held while a statement is cancelled, so that no other request can get the connection meanwhile.
        self._lock = Lock()
        self._using: psycopg.Connection[Any] | None = None
        self._is_stopped = False

    def run(self) -> T:
        try:
            with ExitStack() as watched:
                for connection in connections.all():
                    watched.enter_context(connection.execute_wrapper(self._execute))
                return self._work()
        finally:
            with self._lock:
                self._using = None
            connections.close_all()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            if self._using is not None:
                # How long the database may take to accept a cancellation.
                self._using.cancel_safe(timeout=2)

    def _execute(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
        with self._lock:
            if self._is_stopped:
                raise Abandoned
            self._using = context["connection"].connection
        return execute(sql, params, many, context)
