"""Threads that work for the event loop: what comes back, how many there are, and what they keep."""

import asyncio
import gc
import threading
import weakref
from contextvars import ContextVar

import pytest

from core.threads import Threads

NAME = "of this test"
said = ContextVar("said", default="nothing")


@pytest.fixture
def threads():
    return Threads(2, name=NAME)


def alive():
    return [thread for thread in threading.enumerate() if thread.name.startswith(NAME)]


async def test_what_the_work_returns_or_raises_comes_back(threads):
    assert await threads.run(threading.current_thread) is not threading.current_thread()
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 / 0)
    with pytest.raises(SystemExit):
        await threads.run(lambda: exec("raise SystemExit"))
    assert await threads.run(lambda: "still there") == "still there"


async def test_the_work_sees_the_callers_context_and_changes_only_its_own(threads):
    said.set("hello")
    assert await threads.run(said.get) == "hello"
    await threads.run(lambda: said.set("something else"))
    assert said.get() == "hello"
    assert await threads.run(said.get) == "hello"


async def test_one_thread_does_for_one_after_another_and_no_more_than_allowed_for_many_at_once():
    before = len(alive())
    threads = Threads(3, name=NAME)
    for _ in range(50):
        await threads.run(int)
        # What comes before a thread is back from what it did last may get another.
        while not threads._idle:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
    assert len(alive()) - before == 1
    first, rest = threading.Barrier(3), threading.Event()

    def work():
        if not rest.is_set():
            first.wait(10)
            rest.set()

    await asyncio.gather(*(threads.run(work) for _ in range(20)))
    assert len(alive()) - before == 3


async def test_who_is_cancelled_waits_no_longer_and_the_work_is_done_nevertheless(threads):
    may_end, has_ended = threading.Event(), threading.Event()

    def work():
        may_end.wait(10)
        has_ended.set()

    waiting = asyncio.create_task(threads.run(work))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    may_end.set()
    assert await threads.run(lambda: has_ended.wait(10))


async def test_what_is_to_be_done_afterwards_keeps_nobody_waiting_and_comes_before_other_work(caplog):
    threads, may_end, done = Threads(1, name=NAME), threading.Event(), []

    def tidy_up():
        may_end.wait(10)
        done.append(said.get())
        raise ZeroDivisionError

    said.set("hello")
    assert await threads.run(lambda: "here", afterwards=tidy_up) == "here"
    assert not done
    may_end.set()
    assert await threads.run(done.copy) == ["hello"]
    # Whether there was an answer or not, and what fails there is nobody's answer.
    with pytest.raises(KeyError):
        await threads.run(lambda: {}["nothing"], afterwards=tidy_up)
    assert await threads.run(done.copy) == ["hello", "hello"]
    assert [record.exc_info[0] for record in caplog.records] == [ZeroDivisionError, ZeroDivisionError]


async def test_nothing_is_kept_of_what_is_done(threads):
    class Something:
        pass

    done = await threads.run(Something)
    kept = weakref.ref(done)
    del done
    # The thread, which may still be about to wait, gets as long as it needs for that.
    for _ in range(500):
        if kept() is None:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"{gc.get_referrers(kept())} refer to it")


def test_a_thread_outlives_the_loop_that_it_worked_for(threads):
    may_end = threading.Event()

    async def leave():
        asyncio.get_running_loop().create_task(threads.run(lambda: may_end.wait(10)))
        await asyncio.sleep(0)

    asyncio.run(leave())
    may_end.set()
    assert [asyncio.run(threads.run(lambda: "here")) for _ in range(4)] == ["here"] * 4
