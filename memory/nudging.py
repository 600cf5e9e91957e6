"""Telling the workers that something waits, from a thread of its own, so that a dead or silent broker delays nobody.

A nudge carries nothing: the pending rows are the queue. Many nudges become one, and a lost one is made up by the sweep.
"""

import logging
import os
import threading
import time

logger = logging.getLogger(__name__)

# After each. It costs a millisecond or two of Python, for which whoever saves one turn after the other would wait.
PAUSE_SECONDS = 0.05


class Nudger:
    """One thread for each process, started with the first nudge."""

    def __init__(self) -> None:
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._started_in: int | None = None

    def nudge(self) -> None:
        self._ensure_started()
        self._wanted.set()

    def _ensure_started(self) -> None:
        if self._started_in == os.getpid():
            return
        with self._lock:
            if self._started_in != os.getpid():
                threading.Thread(target=self._run, name="nudger", daemon=True).start()
                self._started_in = os.getpid()

    def _run(self) -> None:
        from memory.tasks import embed_pending

        while self._wanted.wait():
            self._wanted.clear()
            try:
                embed_pending.apply_async(retry=False)
            except Exception as error:  # whatever ails the broker, the sweep will find the rows
                logger.warning("No worker could be nudged: %s", type(error).__name__)
            time.sleep(PAUSE_SECONDS)


nudge = Nudger().nudge
