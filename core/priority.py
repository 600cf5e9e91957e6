"""Steps threads back that compute for long, so that on a busy machine requests and the database go before them."""

import os
import sys

# Beside a thread of the usual priority one of this gets a tenth of a core; an idle core it has whole.
NICENESS = 10


def step_back() -> None:
    """Lower the priority of the calling thread, and so of those that it starts. Only Linux has one for each thread."""
    if sys.platform == "linux":
        os.nice(NICENESS)
