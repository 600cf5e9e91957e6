"""Bounds the processor time that one text may take to render: the interpreter runs one thing at a time."""

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TypeVar

# The time is that of the thread, so a busy machine changes nothing that a reader sees.

Value = TypeVar("Value")

# Dense Markdown of the longest length that is rendered takes 1.8 s on two slow cores.
RENDERING_SECONDS = 2.5
# What takes longer goes on one at a time: several at once would leave everybody else a small part of the interpreter.
SHARED_SECONDS = 0.1
_alone = threading.Lock()


@dataclass
class _Budget:
    ends_at: float
    waits_at: float
    is_alone: bool = False


_budget: ContextVar[_Budget | None] = ContextVar("rendering_budget", default=None)


@contextmanager
def budget(seconds: float | None = None) -> Iterator[None]:
    """Within it `check` raises once the time is over; an outer budget ends an inner one.

    A text that takes too long is shown, or the rest of it, as it was written.
    """
    outer, now = _budget.get(), time.thread_time()
    mine = _Budget(now + (RENDERING_SECONDS if seconds is None else seconds), now + SHARED_SECONDS)
    if outer is not None:
        mine = replace(outer, ends_at=min(mine.ends_at, outer.ends_at))
    token = _budget.set(mine)
    try:
        yield
    finally:
        _budget.reset(token)
        if mine.is_alone and not (outer and outer.is_alone):
            _alone.release()


def check() -> None:
    """Raises `TimeoutError`; waits for its turn, once, when the text takes long."""
    if mine := _budget.get():
        now = time.thread_time()
        if now > mine.ends_at:
            raise TimeoutError
        if now > mine.waits_at and not mine.is_alone:
            mine.is_alone = _alone.acquire()


def spend(values: Iterable[Value], *, at_most: float) -> Iterator[Value]:
    """The values, as long as making them takes at most so many seconds. Raises `TimeoutError`."""
    ends_at = time.thread_time() + at_most
    for value in values:
        check()
        if time.thread_time() > ends_at:
            raise TimeoutError
        yield value
