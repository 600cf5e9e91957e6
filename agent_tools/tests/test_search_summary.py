"""What people are shown of a search that a model made: how much was found, and where."""

import re

import pytest

from agent_tools.tools import registry
from intake.tests.factories import a_person, a_turn
from memory import index

pytestmark = pytest.mark.django_db


def summary_of(user, query="cat"):
    tool = registry.get("search_chat_history")
    return tool.summarise(tool.call({"query": query, "limit": 20}, user=user), user)


def test_it_counts_turns_and_links_to_the_nearest_of_each_conversation():
    alice = a_person()
    turn = a_turn(alice, "My cat is called Miso")
    a_turn(alice, "The weather is fine", conversation=turn.conversation)
    index.embed_pending()
    path = f"/c/{turn.conversation_id}/?turn=1#turn-1"
    assert summary_of(alice) == f"Found 2 turns: [My cat is called Miso]({path})"


def test_many_conversations_are_three_links_and_a_number():
    alice = a_person()
    for number in range(5):
        a_turn(alice, f"Cat number {number} " + "with a very long title " * 5)
    index.embed_pending()
    summary = summary_of(alice)
    assert summary.count("](/c/") == 3
    assert summary.endswith(" and 2 more")
    assert all(len(text) <= 48 for text in re.findall(r"\[(.*?)\]\(", summary))


def test_a_title_cannot_break_out_of_its_link():
    alice = a_person()
    a_turn(alice, "cat](https://evil.example) [x\\")
    index.embed_pending()
    assert "](https://" not in summary_of(alice)


def test_a_visitor_is_told_how_to_have_a_memory():
    assert "register or log in" in summary_of(None)


def test_nothing_found_is_said():
    assert summary_of(a_person()) == "Nothing found"


def test_what_is_only_the_nearest_is_not_called_found():
    alice = a_person()
    a_turn(alice, "My cat is called Miso")
    index.embed_pending()
    for name in ("search_chat_history", "search_history"):
        tool = registry.get(name)
        output = tool.call({"query": "cat"}, user=alice)
        nearest = output.model_copy(update={"nothing_relevant": True})
        assert tool.summarise(output.model_copy(update={"nothing_relevant": None}), alice).startswith("Found ")
        assert tool.summarise(nearest, alice).startswith("Nothing found about it; the nearest: [My cat")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("tool", "data"), [("search_chat_history", {"mode": "hybrid"}), ("search_history", {})])
def test_tools_say_which_words_are_no_operators_and_what_no_text_has(tool, data):
    alice = a_person()
    a_turn(alice, "The roof has old tiles")
    index.embed_pending()

    answer = registry.get(tool).call({"query": 'roof "purple tiles" before:soon', **data}, user=alice)

    assert answer.nothing_relevant is True and answer.results
    assert "Read as plain words" in answer.note and 'No text has "purple tiles" word for word' in answer.note
    assert "-word" in registry.get("search_history").input_schema["properties"]["query"]["description"]
