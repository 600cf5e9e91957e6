"""Measures how much of a request is computed while its thread holds a database connection, and what is waited for."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

WAITS = ("subprocess.Popen", "socket.connect", "socket.getaddrinfo", "time.sleep")


@dataclass
class Held:
    """Processor seconds of the thread: all, and those with a connection. `waits`: what was waited for with one."""

    seconds: float = 0.0
    with_connection: float = 0.0
    waits: list[str] = field(default_factory=list)


_watched: list[tuple[int, Held]] = []


def _note(event: str, *_: object) -> None:
    if event in WAITS and _watched and connection.connection is not None:
        thread, held = _watched[-1]
        if thread == threading.get_ident():
            held.waits.append(event)


@contextmanager
def watched() -> Iterator[Held]:
    """What this thread does within; it begins without a connection."""
    if _note not in _hooked:
        sys.addaudithook(_note)
        _hooked.append(_note)
    held, since = Held(), [0.0]
    connect, close, wait = BaseDatabaseWrapper.connect, BaseDatabaseWrapper.close, threading.Condition.wait

    def connecting(self: Any) -> None:
        connect(self)
        since[0] = time.thread_time()

    def closing(self: Any) -> None:
        if self.connection is not None:
            held.with_connection += time.thread_time() - since[0]
        close(self)

    def waiting(self: Any, timeout: float | None = None) -> bool:
        _note("time.sleep")
        return wait(self, timeout)

    connection.close()
    begun = time.thread_time()
    _watched.append((threading.get_ident(), held))
    with (
        patch.object(BaseDatabaseWrapper, "connect", connecting),
        patch.object(BaseDatabaseWrapper, "close", closing),
        patch.object(threading.Condition, "wait", waiting),
    ):
        try:
            yield held
        finally:
            _watched.pop()
            held.seconds = time.thread_time() - begun
            connection.close()


_hooked: list[Any] = []
