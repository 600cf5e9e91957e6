"""Lowers the priority of threads that compute for long: on a busy machine requests and the database come first."""

import os
import sys


def step_back() -> None:
    """Lower the priority of the calling thread and of the threads that it starts. Only Linux has one per thread."""
    if sys.platform == "linux":
        # A thread with this niceness gets a tenth of a busy core beside a normal one, and all of an idle core.
        os.nice(10)
