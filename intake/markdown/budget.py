"""Bounds the processor time that one text may take to render: the interpreter runs one thing at a time."""

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TypeVar

# The time is that of the thread, so a busy machine changes nothing that a reader sees.

Value = TypeVar("Value")

# Dense Markdown of the longest length that is rendered takes 1.8 s on two slow cores.
RENDERING_SECONDS = 2.5
# What takes longer goes on in turns of this length, one thread at a time: several at once would leave everybody else a
# small part of the interpreter.
TURN_SECONDS = 0.03
# The threads that want a turn, in their order; the first has it.
_turns: deque[threading.Lock] = deque()
_queueing = threading.Lock()


@dataclass
class _Budget:
    ends_at: float
    waits_at: float
    has_turn: bool = False


_budget: ContextVar[_Budget | None] = ContextVar("rendering_budget", default=None)


@contextmanager
def budget(seconds: float | None = None, *, is_long: bool = False) -> Iterator[None]:
    """Within it `check` raises once the time is over; an outer budget ends an inner one. `is_long`: waits at once.

    A text that takes too long is shown, or the rest of it, as it was written.
    """
    outer, now = _budget.get(), time.thread_time()
    mine = _Budget(now + (RENDERING_SECONDS if seconds is None else seconds), now if is_long else now + TURN_SECONDS)
    if outer is not None:
        ends_at, waits_at = min(mine.ends_at, outer.ends_at), min(mine.waits_at, outer.waits_at)
        mine = replace(outer, ends_at=ends_at, waits_at=waits_at)
    token = _budget.set(mine)
    try:
        yield
    finally:
        _budget.reset(token)
        if mine.has_turn and not (outer and outer.has_turn):
            _end_turn()


def check() -> None:
    """Raises `TimeoutError`; waits for its next turn when the text takes long."""
    if mine := _budget.get():
        now = time.thread_time()
        if now > mine.ends_at:
            raise TimeoutError
        if now > mine.waits_at:
            if mine.has_turn:
                _end_turn()
            waiting = threading.Lock()
            waiting.acquire()
            with _queueing:
                _turns.append(waiting)
                if len(_turns) == 1:
                    waiting.release()
            waiting.acquire()
            mine.has_turn, mine.waits_at = True, now + TURN_SECONDS


def _end_turn() -> None:
    with _queueing:
        _turns.popleft()
        if _turns:
            _turns[0].release()


def spend(values: Iterable[Value], *, at_most: float) -> Iterator[Value]:
    """The values, as long as making them takes at most so many seconds. Raises `TimeoutError`."""
    ends_at = time.thread_time() + at_most
    for value in values:
        check()
        if time.thread_time() > ends_at:
            raise TimeoutError
        yield value
