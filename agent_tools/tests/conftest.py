"""Who calls: a person, and their agent with a token for everything."""

from contextlib import suppress

import pytest
from redis.exceptions import RedisError

from agent_tools.oauth import clients
from agent_tools.tests.callers import client_of
from intake.tests.factories import a_person


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def api(alice):
    return client_of(alice)


@pytest.fixture(autouse=True)
def _forgotten_failures():
    """A client's document that a test could not fetch is of no concern to the next one."""
    yield
    with suppress(RedisError):
        clients._redis().delete(clients._UNFETCHED)
