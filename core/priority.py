"""Lets threads that compute for long leave room: on a busy machine requests and the database come first."""

import gc
import os
import sys


def step_back() -> None:
    """Lower the priority of the calling thread and of the threads that it starts. Only Linux has one per thread."""
    if sys.platform == "linux":
        # A thread with this niceness gets a tenth of a busy core beside a normal one, and all of an idle core.
        os.nice(10)


def share_from_now_on() -> None:
    """Once a process is loaded, with `gc.disable()` until then: bounds how long one of its threads stops the others.

    1. A thread computes for half a millisecond at a time; Python's own 5 ms are for programs that only compute. A
       request waits for the database some twenty times, and after each time for its turn.
    2. The garbage collector, which stops every thread, leaves out what is loaded, and looks at new objects by the
       50,000: after each 700, Python's own, it takes a third of the time in which a wide table is drawn, and up to
       76 ms at once; so a twentieth, and 3 ms.
    """
    sys.setswitchinterval(0.0005)
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
