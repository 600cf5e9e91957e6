"""Wakes a worker after a save, from its own thread, so that a dead or silent broker delays no request.

The message contains only the id of a request: the pending rows are the queue. Many calls become one message, and the
sweep makes up for a lost one.
"""

import logging
import os
import threading
import time

from celery import current_app

from core.request_ids import request_id

logger = logging.getLogger(__name__)

# By name: the tasks import the module that wakes their workers.
TASK = "memory.embed_pending"
# The pause after each message: sending one takes a millisecond or two of Python, which a series of saves would wait
# for.
PAUSE_SECONDS = 0.05


class Waker:
    """One thread per process, started with the first call. `task`: the name of the task that it sends."""

    def __init__(self, task: str = TASK) -> None:
        self._task = task
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._started_in: int | None = None
        self._request_id = ""

    def wake_worker(self) -> None:
        self._ensure_started()
        self._request_id = request_id.get()
        self._wanted.set()

    def _ensure_started(self) -> None:
        if self._started_in == os.getpid():
            return
        with self._lock:
            if self._started_in != os.getpid():
                threading.Thread(target=self._run, name="waker", daemon=True).start()
                self._started_in = os.getpid()

    def _run(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            request_id.set(self._request_id)
            try:
                current_app.send_task(self._task, retry=False, ignore_result=True)
            except Exception as error:  # whatever the broker's error, the sweep will find the rows
                logger.warning("No worker could be woken: %s", type(error).__name__)
            time.sleep(PAUSE_SECONDS)


wake_worker = Waker().wake_worker
