"""The web process as it starts: what is loaded before, or beside, the first request."""

import gc
import sys

import pytest

from config.asgi import _load_the_rest
from core.gc_tuning import OBJECTS_BEFORE_COLLECTION


@pytest.fixture
def collecting_as_before():
    kept = gc.get_threshold()
    yield
    gc.set_threshold(*kept)
    gc.unfreeze()


def test_what_is_loaded_at_the_start_is_looked_through_for_garbage_no_more(collecting_as_before):
    chat = _load_the_rest()
    assert chat is sys.modules["intake.chat"]
    assert gc.get_threshold()[0] == OBJECTS_BEFORE_COLLECTION
    # As many as a loaded Django has at the least.
    assert gc.get_freeze_count() > 100_000
    assert not any(one is chat.__dict__ for one in gc.get_objects())
