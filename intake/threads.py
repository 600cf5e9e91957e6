"""Threads that work for the event loop, and wait for the next piece of work when one is done.

As `loop.run_in_executor`, which takes longer to hand work over and back than most of it takes: it makes two futures for
each piece, one of them with a lock and a condition, and chains them.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Threads:
    """At most `most` threads, started when they are needed. They end with the process, whatever they do then."""

    def __init__(self, most: int, *, name: str) -> None:
        self._most = most
        self._name = name
        self._work: SimpleQueue[_Work] = SimpleQueue()
        self._lock = Lock()
        self._started = 0
        self._under_way = 0

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises, in a copy of this context. Whoever is cancelled meanwhile lets it go on."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        copy = copy_context()
        with self._lock:
            self._under_way += 1
            is_missing = self._started < min(self._under_way, self._most)
            self._started += is_missing
        if is_missing:
            Thread(target=self._serve, name=f"{self._name}_{self._started}", daemon=True).start()
        self._work.put(_Work(loop, future, lambda: copy.run(work)))
        result: T = await future
        return result

    def _serve(self) -> None:
        while True:
            # Of what is done nothing is kept while it waits for more.
            self._do(self._work.get())

    def _do(self, work: "_Work") -> None:
        result, error = None, None
        try:
            result = work.run()
        except BaseException as raised:  # for whoever awaits it to handle
            error = raised
        with self._lock:
            self._under_way -= 1
        try:
            work.loop.call_soon_threadsafe(_settle, work.future, result, error)
        except RuntimeError:
            # The loop is closed, and nobody is left to be told.
            return


class _Work(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[Any]"
    run: Callable[[], Any]


def _settle(future: "asyncio.Future[Any]", result: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
