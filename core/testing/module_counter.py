"""Counts the modules of ours that a piece of work runs through: how many a reader opens who follows it."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings

NOT_THE_PRODUCT = {"tests", "testing", "migrations", ".venv"}
# The database engine, which is asked by every query whatever it is for, and adds nothing on a single server.
ENGINE = {"config/database/compiler.py", "core/isolation/cluster.py", "core/isolation/routing.py"}


class ModuleCounter:
    """The modules in which a function ran, in the order they were first reached, as paths in the repository."""

    def __init__(self) -> None:
        self._root = Path(settings.BASE_DIR)
        self._files: dict[str, None] = {}

    @property
    def modules(self) -> list[str]:
        """Without the framework's, the engine's, the tests' and what only tests run."""
        paths = [Path(name).relative_to(self._root) for name in list(self._files) if self._is_inside(name)]
        return [str(path) for path in paths if not NOT_THE_PRODUCT & {*path.parts} and str(path) not in ENGINE]

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """The callback of `sys.setprofile`; a module's body, which runs at import, does not count as a function."""
        if event == "call" and frame.f_code.co_name != "<module>":
            self._files.setdefault(frame.f_code.co_filename)

    def _is_inside(self, name: str) -> bool:
        return Path(name).is_relative_to(self._root) and Path(name).name != "conftest.py"


@contextmanager
def counted_modules() -> Iterator[ModuleCounter]:
    """Within the block this thread's calls are counted, and those of every thread that starts meanwhile.

    Warm up first: what is done once in a process is not on the way.
    """
    counter = ModuleCounter()
    threading.setprofile(counter.note)
    sys.setprofile(counter.note)
    try:
        yield counter
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
