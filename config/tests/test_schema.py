"""What the OpenAPI document says where drf-spectacular has to be told."""

import json

import pytest
from django.test import Client

from intake.tests.factories import a_person, a_turn
from testing.model_server import Say

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def schema(client):
    return client.get("/api/v1/schema/", headers={"accept": "application/json"}).json()


@pytest.mark.medium
def test_the_events_of_an_answer_are_those_that_are_described(schema, visitor, language_model):
    language_model(Say(("Hello.",)))
    answer = schema["paths"]["/api/v1/intake/chat"]["post"]["responses"]["200"]
    described = answer["content"]["text/event-stream"]["schema"]["properties"]["event"]["enum"]
    assert {event.name for event in visitor.events("Hello")} == {"turn", "delta", "done"} <= set(described)


@pytest.mark.parametrize("query", ["turn=null", "before=-1", "turn=0", "turn=1&turn=1", "turn="])
def test_a_turns_number_that_is_none_is_named(query):
    alice = a_person()
    turn = a_turn(alice, "Hello")
    client = Client()
    client.force_login(alice)
    answer = client.get(f"/api/v1/conversations/{turn.conversation_id}/?{query}")
    assert answer.status_code == 400
    assert list(json.loads(answer.content)["errors"]) == [query.split("=")[0]]
