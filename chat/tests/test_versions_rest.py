"""Versions over REST: reading one turn, choosing, branching, deleting a subtree."""

import pytest
from rest_framework.test import APIClient

from intake.models import Conversation
from intake.tests.factories import a_person, a_turn

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def api(alice):
    client = APIClient()
    client.force_authenticate(alice)
    return client


@pytest.fixture
def path(alice):
    """Of a conversation: a first turn, two versions of the second, and one turn after each."""
    conversation = a_turn(alice, "First").conversation
    for parent in (1, 1, 2, 3):
        a_turn(alice, "Next", conversation=conversation, parent=parent)
    return f"/api/v1/conversations/{conversation.pk}/"


def test_a_conversation_shows_its_chosen_path_with_the_versions_of_each_turn(api, path):
    body = api.get(path).json()
    assert (body["lastTurnNumber"], body["currentTurnNumber"]) == (5, 5)
    assert [(turn["turnNumber"], turn.get("parentTurnNumber"), turn["versions"]) for turn in body["turns"]] == [
        (1, None, [1]),
        (3, 1, [2, 3]),
        (5, 3, [5]),
    ]
    other = api.get(path, {"turn": 2}).json()
    assert [turn["turnNumber"] for turn in other["turns"]] == [1, 2, 4]


def test_one_turn_says_how_many_there_are_from_it_on(api, path):
    turn = api.get(f"{path}turns/1/").json()
    assert (turn["turnsFromHere"], turn["versions"]) == (5, [1])
    assert api.get(f"{path}turns/2/").json()["turnsFromHere"] == 2
    assert api.get(f"{path}turns/9/").status_code == 404


def test_choosing_a_version_chooses_the_path_below_it(api, path):
    assert api.post(f"{path}turns/2/choose/").json() == {"currentTurnNumber": 4}
    assert [turn["turnNumber"] for turn in api.get(path).json()["turns"]] == [1, 2, 4]


def test_a_branch_is_a_conversation_of_its_own_that_names_its_origin(api, path):
    made = api.post(f"{path}turns/3/branch/")
    origin = Conversation.objects.get(branched_from=None)
    assert made.status_code == 201
    assert made.json()["branchedFrom"] == {"conversationId": str(origin.pk), "turnNumber": 3}
    assert made.json()["title"] == "First (branch)"
    again = api.post(f"{path}turns/3/branch/").json()
    assert again["conversationId"] != made.json()["conversationId"]


def test_a_subtree_goes_only_if_it_is_as_large_as_was_said(api, path):
    refused = api.delete(f"{path}turns/2/?from_here=3")
    assert (refused.status_code, refused.json()["code"]) == (412, "conflict")
    assert api.delete(f"{path}turns/2/?from_here=x").status_code == 400
    assert api.delete(f"{path}turns/2/?from_here=2").status_code == 204
    assert list(Conversation.objects.get().turns.values_list("turn_number", flat=True)) == [1, 3, 5]
    assert api.get(path).json()["lastTurnNumber"] == 5
