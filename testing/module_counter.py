"""Counts this project's modules in which a function runs: the number of files to open to follow the work."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.urls import URLResolver

NOT_THE_PRODUCT = {"tests", "testing", "migrations", ".venv"}


class ModuleCounter:
    """The modules in which a function ran since `count_from_now`, in the order they were first reached.

    Those that a request runs through before Django looks up its address serve every request alike, and do not count.
    """

    def __init__(self) -> None:
        self._root = Path(settings.BASE_DIR)
        self._files: dict[str, None] = {}
        self._before: set[str] = set()
        self._is_before = True

    @property
    def modules(self) -> list[str]:
        """As paths in the repository, without modules of the framework and the tests."""
        counted = [name for name in list(self._files) if name not in self._before and self._is_inside(name)]
        paths = [Path(name).relative_to(self._root) for name in counted]
        return [str(path) for path in paths if not NOT_THE_PRODUCT & {*path.parts}]

    def count_from_now(self) -> None:
        """Forget what ran, and wait for the next request."""
        self._files.clear()
        self._before.clear()
        self._is_before = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing counts within the block: it is the test's own work."""
        kept = dict(self._files)
        yield
        self._files = kept

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """The callback of `sys.setprofile`; a module's body, which runs at import, does not count as a function."""
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        if frame.f_code is URLResolver.resolve.__code__:
            self._is_before = False
        if self._is_before:
            self._before.add(frame.f_code.co_filename)
        else:
            self._files.setdefault(frame.f_code.co_filename)

    def _is_inside(self, name: str) -> bool:
        return Path(name).is_relative_to(self._root) and Path(name).name != "conftest.py"


@contextmanager
def counted_modules() -> Iterator[ModuleCounter]:
    """Within the block, counts the calls of this thread and of every thread that starts meanwhile.

    Warm up within the block, then call `count_from_now`: work that a process does only once is not counted.
    """
    counter = ModuleCounter()
    threading.setprofile(counter.note)
    sys.setprofile(counter.note)
    try:
        yield counter
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
