"""One supervisor for each `var`: a lock that the kernel releases however its holder ends."""

import fcntl
import os
from pathlib import Path


class RunLock:
    """An exclusive lock on a file that names its holder; held until the process ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a+")

    def acquire(self) -> bool:
        """Take the lock, or return False when another process holds it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()
        return True

    def holder(self) -> int | None:
        """Return the process that holds the lock: only meaningful after `acquire` returned False."""
        text = self.path.read_text()
        return int(text) if text else None
