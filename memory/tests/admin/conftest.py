"""Who comes to the admin."""

import pytest

from intake.models import User
from memory.tests.admin.pages import staff_with
from testing import ZONE_OF_PEOPLE


@pytest.fixture
def alice():
    return User.objects.create_user("alice@example.org", time_zone=ZONE_OF_PEOPLE)


@pytest.fixture
def bob():
    return User.objects.create_user("bob@example.org", time_zone=ZONE_OF_PEOPLE)


@pytest.fixture
def superuser():
    return User.objects.create_superuser("root@example.org")


@pytest.fixture
def viewer(client):
    """Staff who may look."""
    client.force_login(staff_with("view_embedding"))
    return client


@pytest.fixture
def editor(client):
    """Staff who may look and have rows embedded again."""
    client.force_login(staff_with("view_embedding", "change_embedding"))
    return client
