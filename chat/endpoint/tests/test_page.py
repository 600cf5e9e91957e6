"""The page of other apps makes a key, and says what is kept of its requests."""

import pytest

from agent_tools.models import AccessToken
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db


def test_a_key_that_is_made_stands_once_in_each_apps_fields_with_what_it_keeps(client):
    alice = a_person()
    client.force_login(alice)
    made = client.post("/settings/apps/", {"name": "Obsidian", "keeps": "nothing"}).content.decode()
    token = AccessToken.objects.get(user=alice)
    assert (token.scopes, token.keeps, token.is_bound) == (["chat"], "nothing", False)
    assert "YOUR_TOKEN" not in made
    assert "http://testserver/v1" in made
    later = client.get("/settings/apps/").content.decode()
    assert "Kept here: Nothing." in later
    assert "YOUR_TOKEN" in later


def test_a_key_that_is_bound_needs_a_project(client):
    client.force_login(a_person())
    refused = client.post("/settings/apps/", {"name": "Obsidian", "keeps": "chats", "bound": "on"}).content.decode()
    assert "Name the project that the token is bound to." in refused
