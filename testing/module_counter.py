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
    """The modules in which a function ran since `count_from_now`, in the order they were first reached."""

    def __init__(self) -> None:
        self._root = Path(settings.BASE_DIR)
        self._files: dict[str, None] = {}
        self._waits_for_resolver = True

    @property
    def modules(self) -> list[str]:
        """As paths in the repository, without modules of the framework and the tests."""
        paths = [Path(name).relative_to(self._root) for name in list(self._files) if self._is_inside(name)]
        return [str(path) for path in paths if not NOT_THE_PRODUCT & {*path.parts}]

    def count_from_now(self, *, from_resolver: bool = True) -> None:
        """Forget what ran. `from_resolver`: begin only when Django looks up the address of a request."""
        self._files.clear()
        self._waits_for_resolver = from_resolver

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """The callback of `sys.setprofile`; a module's body, which runs at import, does not count as a function."""
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        if frame.f_code is URLResolver.resolve.__code__:
            self._waits_for_resolver = False
        if not self._waits_for_resolver:
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
