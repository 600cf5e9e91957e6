"""What a model reads of the project that a chat belongs to."""

import pytest

from chat.agent.context import deps_for
from chat.agent.prompt import instructions
from core.isolation.acting import acting_as
from intake.models import Conversation
from intake.tests.factories import NOW, a_person, a_turn, caller_for
from memory import documents, projects

pytestmark = pytest.mark.django_db


def label(turn, project, **fields):
    Conversation.objects.filter(pk=turn.conversation_id).update(project=project, **fields)
    return turn


def prompt_of(turn):
    conversation = Conversation.objects.get(pk=turn.conversation_id)
    with acting_as(turn.user):
        deps = deps_for(caller_for(turn.user), conversation, now=NOW)
    return instructions(deps, may_use_tools=True)


def test_a_chat_of_a_project_has_its_instructions_and_its_memory_beside_the_general_one(alice):
    with acting_as(alice):
        documents.append(user=alice, day=None, text="- Tea, not coffee", now=NOW)
        documents.append(user=alice, day=None, project="Garden", text="- The soil is clay", now=NOW)
        documents.append(user=alice, day=None, project="House", text="- The worktop is oak", now=NOW)
        projects.save_project(user=alice, name="Garden", instructions="Name plants in Latin.")
        projects.save_project(user=alice, name="House", instructions="Use millimetres.")
    instructions, data = prompt_of(label(a_turn(alice, "What grows here?"), "Garden"))
    assert "Name plants in Latin." in instructions and "millimetres" not in instructions
    assert "Tea, not coffee" in data and "The soil is clay" in data and "oak" not in data
    assert data.index("Tea, not coffee") < data.index("The soil is clay")
    for text in ("Garden\n</data ", "The soil is clay\n\n</data "):
        assert text in data
    instructions, data = prompt_of(a_turn(alice, "And outside?"))
    assert "Latin" not in instructions and "clay" not in data and "project" not in data


def test_a_chat_without_memory_has_the_instructions_of_its_project_alone(alice):
    with acting_as(alice):
        documents.append(user=alice, day=None, project="Garden", text="- The soil is clay", now=NOW)
        projects.save_project(user=alice, name="Garden", instructions="Name plants in Latin.")
    instructions, data = prompt_of(label(a_turn(alice, "What grows here?"), "Garden", uses_memory=False))
    assert "Latin" in instructions and "clay" not in data


def test_a_project_of_the_same_name_of_somebody_else_has_no_word_in_a_chat(alice):
    bob = a_person("bob@example.com")
    with acting_as(bob):
        documents.append(user=bob, day=None, project="Garden", text="- The soil is clay", now=NOW)
        projects.save_project(user=bob, name="Garden", instructions="Name plants in Latin.")
    instructions, data = prompt_of(label(a_turn(alice, "What grows here?"), "Garden"))
    assert "Latin" not in instructions and "clay" not in data
