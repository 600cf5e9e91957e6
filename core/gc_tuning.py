"""How rarely Python looks for objects that only hold each other."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# How many objects more than a while ago make it look among the new ones. With its own 700 nearly every search did, in
# vain: that many are in use at once while it reads what it found, and a request leaves a hundred.
OBJECTS_BEFORE_COLLECTION = 10_000


def look_for_cycles_rarely() -> None:
    """For a process that has loaded what it works with: that stays until it ends, and is not looked through again."""
    gc.freeze()
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION, *gc.get_threshold()[1:])


@contextmanager
def cycles_looked_for_rarely() -> Iterator[None]:
    """The same for a while."""
    kept = gc.get_threshold()
    look_for_cycles_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*kept)
        gc.unfreeze()
