"""How rarely Python looks for objects that only hold each other."""

import gc

# How many objects more than a while ago make it look among the new ones. With its own 700 nearly every search did, in
# vain: that many are in use at once while it reads what it found, and a request leaves a hundred.
OBJECTS_BEFORE_COLLECTION = 10_000


def look_for_cycles_rarely() -> None:
    """For a process that has loaded what it works with: that stays until it ends, and is not looked through again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION, *gc.get_threshold()[1:])
