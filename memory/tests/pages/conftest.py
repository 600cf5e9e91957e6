"""Whose notes they are."""

import pytest
from django.test import Client

from intake.tests.factories import a_person


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def client(alice) -> Client:
    client = Client()
    client.force_login(alice)
    return client
