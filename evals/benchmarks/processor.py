"""The processor's time of this process and of the PostgreSQL process that serves its connection."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from django.db import connection

from evals.benchmarks.population import ProcessorTime


class ProcessorClock:
    """Adds up what the blocks within `running()` took; waiting does not count.

    The operating system counts the database's process in hundredths of a second, so measure many blocks.
    """

    def __init__(self) -> None:
        self._process = self._database = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """The block must keep to the connection with which it begins."""
        backend = _backend()
        database, process, begun = _seconds(backend), time.process_time(), time.perf_counter()
        yield
        process, elapsed = time.process_time() - process, time.perf_counter() - begun
        self._process += process
        # A server that is elsewhere shows no times: it took no longer than this process waited.
        self._database += _seconds(backend) - database if backend else max(0.0, elapsed - process)

    def per_operation(self, count: int) -> ProcessorTime:
        return ProcessorTime(process=1000 * self._process / count, database=1000 * self._database / count)


def _backend() -> psutil.Process | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (number,) = cursor.fetchone()
    try:
        process = psutil.Process(number)
        return process if process.name() == "postgres" else None
    except psutil.Error:
        return None


def _seconds(process: psutil.Process | None) -> float:
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)
