"""Whose notes they are, and their client."""

import pytest

from memory.tests.over_rest import client_of


@pytest.fixture
def api(alice):
    return client_of(alice)
