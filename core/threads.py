"""Threads that work for the event loop, and wait for the next piece of work when one is done.

As `loop.run_in_executor`, which takes longer to hand work over and back than most of it takes: it makes two futures for
each piece, one of them with a lock and a condition, and chains them.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, TypeVar

logger = logging.getLogger(__name__)
T = TypeVar("T")

# So long nothing is done afterwards: it would hold the interpreter's lock, which the loop needs to pass the result on.
PASSING_ON_SECONDS = 0.0005


class Threads:
    """At most `most` threads, started when they are needed. They end with the process, whatever they do then."""

    def __init__(self, most: int, *, name: str) -> None:
        self._most = most
        self._name = name
        self._lock = Lock()
        self._started = 0
        # Where each thread that has nothing to do waits for work. The last one is asked first: its memory is warm.
        self._idle: list[SimpleQueue[_Work]] = []
        self._backlog: deque[_Work] = deque()

    async def run(self, work: Callable[[], T], *, afterwards: Callable[[], None] | None = None) -> T:
        """What `work` returns or raises, in a copy of this context. Whoever is cancelled meanwhile lets it go on.

        `afterwards` is done by the same thread when the result is on its way, a moment later, before any other work.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        copy = copy_context()
        then = None if afterwards is None else partial(copy.run, afterwards)
        self._hand_over(_Work(loop, future, partial(copy.run, work), then))
        result: T = await future
        return result

    def _hand_over(self, work: "_Work") -> None:
        with self._lock:
            if self._idle:
                self._idle.pop().put(work)
                return
            self._backlog.append(work)
            if self._started == self._most:
                return
            self._started += 1
            name = f"{self._name}_{self._started}"
        Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        own: SimpleQueue[_Work] = SimpleQueue()
        while True:
            # Of what is done nothing is kept while it waits for more.
            _do(self._next(own))

    def _next(self, own: "SimpleQueue[_Work]") -> "_Work":
        with self._lock:
            if self._backlog:
                return self._backlog.popleft()
            self._idle.append(own)
        return own.get()


class _Work(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    run: Callable[[], Any]
    afterwards: Callable[[], None] | None


def _do(work: _Work) -> None:
    result, error = None, None
    try:
        result = work.run()
    except BaseException as raised:  # for whoever awaits it to handle
        error = raised
    with suppress(RuntimeError):  # the loop is closed, and nobody is left to be told
        work.loop.call_soon_threadsafe(_settle, work.future, result, error)
    if work.afterwards is not None:
        time.sleep(PASSING_ON_SECONDS)
        try:
            work.afterwards()
        except Exception:
            logger.exception("What was to be done after an answer failed")


def _settle(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
