"""Counts this project's functions that run, and their modules: what a reader reads who follows the work."""

import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from django.conf import settings
from django.urls import URLResolver

NOT_THE_PRODUCT = {"tests", "testing", "migrations", ".venv"}


class ModuleCounter:
    """The functions that ran in each of the last three rounds, and their modules in the order they were reached.

    A round begins with `count_from_now`. What another thread does at its own pace, such as renewing a lease, runs in
    one round and not in the next, and so does not count. Neither does what serves every request alike: the functions
    that run before Django looks up an address.
    """

    def __init__(self) -> None:
        self._root = Path(settings.BASE_DIR)
        self._rounds: deque[tuple[dict[CodeType, None], set[CodeType]]] = deque([({}, set())], maxlen=3)
        self._is_before = True

    @property
    def functions(self) -> list[CodeType]:
        """Without those of the framework and the tests, and without comprehensions, which stand within a function."""
        rounds = [dict(ran) for ran, _ in self._rounds]
        before = self._before
        ran = [code for code in rounds[-1] if all(code in each for each in rounds) and code not in before]
        return [code for code in ran if self._is_ours(Path(code.co_filename)) and not code.co_name.startswith("<")]

    @property
    def _before(self) -> set[CodeType]:
        return set.intersection(*(set(before) for _, before in self._rounds))

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
        """Begin a round at the next request, or `at_once`: `/mcp` is no address of Django's."""
        self._rounds.append(({}, set()))
        self._is_before = not at_once

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing counts within the block: it is the test's own work."""
        _, before = self._rounds[-1]
        kept = dict(self._rounds[-1][0])
        yield
        self._rounds[-1] = kept, before

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """The callback of `sys.setprofile`; a module's body, which runs at import, does not count as a function."""
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        if frame.f_code is URLResolver.resolve.__code__:
            self._is_before = False
        ran, before = self._rounds[-1]
        if self._is_before:
            before.add(frame.f_code)
        else:
            ran.setdefault(frame.f_code)

    def _is_ours(self, path: Path) -> bool:
        is_inside = path.is_relative_to(self._root) and path.name != "conftest.py"
        return is_inside and not NOT_THE_PRODUCT & {*path.relative_to(self._root).parts}


@contextmanager
def counted_modules() -> Iterator[ModuleCounter]:
    """Within the block, counts the calls of this thread and of every thread that starts meanwhile.

    Warm up within the block before the three rounds: work that a process does only once is not counted.
    """
    counter = ModuleCounter()
    threading.setprofile(counter.note)
    sys.setprofile(counter.note)
    try:
        yield counter
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
