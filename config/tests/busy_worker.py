"""A worker beside whose embedding a map is drawn and an export is imported, both without end: by `--include`."""

import sys
import time

from imports import tasks
from memory.overview import drawing


def draw_without_end(**_):
    """In Python alone, which lets no other thread compute unless it has to."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        sum(range(10_000))


drawing.draw_due = draw_without_end
tasks.queue.has_due = lambda **_: True
tasks.COMMAND[:] = [sys.executable, "-c", "while True: sum(range(10_000))"]
