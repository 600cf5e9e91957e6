"""The lock of the one supervisor of a `var`."""

import os
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout


class RunLock:
    """A lock on a file that names its holder; the kernel releases it however the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(path)

    def acquire(self) -> bool:
        """Take the lock, or return False when another process holds it."""
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            return False
        # A full disk keeps nobody from stopping.
        with suppress(OSError):
            self._path.write_text(str(os.getpid()))
        return True

    def is_held_elsewhere(self) -> bool:
        """Whether a supervisor runs; leaves the lock as it was."""
        try:
            with self._lock.acquire(blocking=False):
                return False
        except Timeout:
            return True

    def holder(self) -> int | None:
        """Return the process that holds the lock: only meaningful after `acquire` returned False."""
        text = self._path.read_text()
        return int(text) if text else None
