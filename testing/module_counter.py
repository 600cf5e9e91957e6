"""Counts this project's functions that run, and their modules: what a reader reads who follows the work."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from django.conf import settings
from django.urls import URLResolver

NOT_THE_PRODUCT = {"tests", "testing", "migrations", ".venv"}


class ModuleCounter:
    """The functions that ran since `count_from_now`, and their modules in the order they were first reached.

    Those that a request runs through before Django looks up its address serve every request alike, and do not count.
    """

    def __init__(self) -> None:
        self._root = Path(settings.BASE_DIR)
        self._ran: dict[CodeType, None] = {}
        self._before: set[CodeType] = set()
        self._is_before = True

    @property
    def functions(self) -> list[CodeType]:
        """Without those of the framework and the tests, and without comprehensions, which stand within a function."""
        ran = [code for code in list(self._ran) if code not in self._before and self._is_ours(Path(code.co_filename))]
        return [code for code in ran if not code.co_name.startswith("<")]

    @property
    def lines(self) -> int:
        """The lines of these functions."""
        return sum(
            max(line for _, _, line in code.co_lines() if line) - code.co_firstlineno + 1 for code in self.functions
        )

    @property
    def modules(self) -> list[str]:
        """As paths in the repository, without those that every request runs through before."""
        before = {code.co_filename for code in self._before}
        names = dict.fromkeys(code.co_filename for code in self.functions if code.co_filename not in before)
        return [str(Path(name).relative_to(self._root)) for name in names]

    def count_from_now(self, *, at_once: bool = False) -> None:
        """Forget what ran, and wait for the next request, or count `at_once`: `/mcp` is no address of Django's."""
        self._ran.clear()
        self._before.clear()
        self._is_before = not at_once

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing counts within the block: it is the test's own work."""
        kept = dict(self._ran)
        yield
        self._ran = kept

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """The callback of `sys.setprofile`; a module's body, which runs at import, does not count as a function."""
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        if frame.f_code is URLResolver.resolve.__code__:
            self._is_before = False
        if self._is_before:
            self._before.add(frame.f_code)
        else:
            self._ran.setdefault(frame.f_code)

    def _is_ours(self, path: Path) -> bool:
        is_inside = path.is_relative_to(self._root) and path.name != "conftest.py"
        return is_inside and not NOT_THE_PRODUCT & {*path.relative_to(self._root).parts}


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
