"""Whose notes they are, and their client."""

import pytest

from intake.tests.factories import a_person
from memory.tests.over_rest import client_of


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def api(alice):
    return client_of(alice)
