"""Who calls: a person, and their agent with a token for everything."""

import pytest

from agent_tools.tests.callers import client_of
from intake.tests.factories import a_person


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def api(alice):
    return client_of(alice)
