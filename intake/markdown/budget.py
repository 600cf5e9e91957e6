"""Bounds the processor time that one text may take to render: the interpreter runs one thing at a time."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

# The time is that of the thread, so a busy machine changes nothing that a reader sees.

Value = TypeVar("Value")

# Dense Markdown of the longest length that is rendered takes 1.8 s on two slow cores.
RENDERING_SECONDS = 2.5
_ends_at: ContextVar[float] = ContextVar("rendering_ends_at", default=float("inf"))


@contextmanager
def budget(seconds: float | None = None) -> Iterator[None]:
    """Within it `check` raises once the time is over; an outer budget ends an inner one.

    A text that takes too long is shown, or the rest of it, as it was written.
    """
    seconds = RENDERING_SECONDS if seconds is None else seconds
    token = _ends_at.set(min(_ends_at.get(), time.thread_time() + seconds))
    try:
        yield
    finally:
        _ends_at.reset(token)


def check() -> None:
    """Raises `TimeoutError`."""
    if time.thread_time() > _ends_at.get():
        raise TimeoutError


def spend(values: Iterable[Value], *, at_most: float) -> Iterator[Value]:
    """The values, as long as making them takes at most so many seconds. Raises `TimeoutError`."""
    ends_at = min(_ends_at.get(), time.thread_time() + at_most)
    for value in values:
        if time.thread_time() > ends_at:
            raise TimeoutError
        yield value
