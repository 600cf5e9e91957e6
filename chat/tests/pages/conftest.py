"""Whose notes they are."""

import pytest
from django.test import Client


@pytest.fixture
def client(alice) -> Client:
    client = Client()
    client.force_login(alice)
    return client
