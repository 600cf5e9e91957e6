"""Counts this project's modules in which a function runs: the number of files to open to follow the work."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings

NOT_THE_PRODUCT = {"tests", "testing", "migrations", ".venv"}


class ModuleCounter:
    """The modules in which a function ran, in the order they were first reached, as paths in the repository."""

    def __init__(self) -> None:
        self._root = Path(settings.BASE_DIR)
        self._files: dict[str, None] = {}

    @property
    def modules(self) -> list[str]:
        """Without modules of the framework and the tests."""
        paths = [Path(name).relative_to(self._root) for name in list(self._files) if self._is_inside(name)]
        return [str(path) for path in paths if not NOT_THE_PRODUCT & {*path.parts}]

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """The callback of `sys.setprofile`; a module's body, which runs at import, does not count as a function."""
        if event == "call" and frame.f_code.co_name != "<module>":
            self._files.setdefault(frame.f_code.co_filename)

    def _is_inside(self, name: str) -> bool:
        return Path(name).is_relative_to(self._root) and Path(name).name != "conftest.py"


@contextmanager
def counted_modules() -> Iterator[ModuleCounter]:
    """Within the block, counts the calls of this thread and of every thread that starts meanwhile.

    Warm up first: work that a process does only once is not counted.
    """
    counter = ModuleCounter()
    threading.setprofile(counter.note)
    sys.setprofile(counter.note)
    try:
        yield counter
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
