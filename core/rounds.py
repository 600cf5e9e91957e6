"""The round of a periodic task over its items: one that fails holds up none of the others."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from threading import Lock
from time import monotonic
from typing import TypeVar

from django.db import InterfaceError, OperationalError
from django.utils import timezone

# A failure is logged once, with its traceback, and again only after the task has been without it for a round. The item
# is tried again in the next round.

T = TypeVar("T")
logger = logging.getLogger(__name__)


# The kinds of failure of each task's last round.
_known: dict[str, set[str]] = {}
_lock = Lock()


Round = tuple[int, int, bool]
"""How many items were done, how many failed, and whether all of them were tried."""


def for_each(
    task: str,
    items: Iterable[T],
    work: Callable[[T], object],
    *,
    seconds: float | None = None,
    postpone: Callable[[T], object] | None = None,
) -> Round:
    """Do `work` for each item for at most so many seconds. One that fails does not stop the others.

    `task` names the round in the log, and must be another one for each round within a task.

    `postpone` is called with an item that failed, if its next attempt should come later than the next round.
    """
    until = None if seconds is None else monotonic() + seconds
    done = failed = database_failures = 0
    kinds: set[str] = set()
    has_all = True
    for item in items:
        try:
            work(item)
        except Exception as error:
            failed += 1
            kinds.add(_say_once(task, error))
            is_of_the_database = isinstance(error, OperationalError | InterfaceError)
            database_failures = database_failures + 1 if is_of_the_database else 0
            if postpone is not None:
                _postpone(task, item, postpone, kinds)
        else:
            done += 1
            database_failures = 0
        # After so many of them in a row the database is taken to be away, and the rest waits for the next round.
        if database_failures >= 3 or (until is not None and monotonic() >= until):
            has_all = False
            break
    with _lock:
        _known[task] = kinds
    return done, failed, has_all


def steps(task: str, *work: Callable[[], object]) -> Round:
    """The parts of a task: one that fails does not stop the others."""
    return for_each(task, work, lambda step: step())


def seconds_until(until: datetime | None) -> float | None:
    return None if until is None else (until - timezone.now()).total_seconds()


def _postpone(task: str, item: T, postpone: Callable[[T], object], kinds: set[str]) -> None:
    try:
        postpone(item)
    except Exception as error:
        kinds.add(_say_once(task, error))


def _say_once(task: str, error: Exception) -> str:
    """Returns the kind of failure: its type and the line that raised it, without its message."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = "" if last is None else f" at {last.tb_frame.f_code.co_qualname}:{last.tb_lineno}"
    kind = f"{type(error).__name__}{place}"
    with _lock:
        is_known = kind in _known.get(task, ())
        _known.setdefault(task, set()).add(kind)
    if not is_known:
        logger.error("%s: an item failed and is tried again later; the others go on (%s)", task, kind, exc_info=error)
    return kind
