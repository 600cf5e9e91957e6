"""Short ids: the last digits of an id name a row of its owner alone, as many as its owner's rows need."""

from uuid import UUID

import pytest

from agent_tools.tests.callers import call
from agent_tools.tools import mcp_registry
from core.errors import NotFound
from core.isolation.acting import acting_as
from intake.llm.tokens import tokens_of
from intake.models import Conversation
from intake.tests.factories import NOW, a_person, a_turn
from memory import index, records
from memory.short_ids import id_in, short_ids

pytestmark = pytest.mark.django_db

ONE, OTHER = UUID("01890a5d-ac96-774b-bcce-b3021111abcd"), UUID("01890a5d-ac96-774b-bcce-b3022111abcd")


def chats(user, *ids):
    with acting_as(user):
        for pk in ids:
            a_turn(user, "I adopted a cat", conversation=Conversation.objects.create(pk=pk, user=user, title="Cat"))


def test_a_short_id_is_longer_where_two_rows_of_the_person_share_its_digits(alice):
    same = UUID("01890a5d-ac96-774b-bcce-b4021111abcd")
    chats(alice, ONE, OTHER)
    with acting_as(alice):
        assert short_ids(alice, [f"{ONE}/3", f"file:{OTHER}:2"]) == {
            f"{ONE}/3": "1111abcd/3",
            f"file:{OTHER}:2": "file:2111abcd:2",
        }
    chats(alice, same)
    with acting_as(alice):
        assert short_ids(alice, [str(ONE)]) == {str(ONE): "b3021111abcd"[1:]}


def test_digits_name_one_row_and_those_of_several_ask_for_more(alice):
    same = UUID("01890a5d-ac96-774b-bcce-b4021111abcd")
    chats(alice, ONE, same)
    rows = Conversation.objects.for_user(alice)
    with acting_as(alice):
        for text in (str(ONE), ONE.hex, "3021111abcd", "3021111ABCD", "bcce-b3021111abcd"):
            assert id_in(rows, text) == ONE
        for text in ("", "abcd", "zzzzzzzz", "%1111abcd", "99999999"):
            with pytest.raises(NotFound, match=r"^Not found\.$"):
                id_in(rows, text)
        with pytest.raises(NotFound, match="Send more digits"):
            id_in(rows, "1111abcd")


def test_somebody_elses_digits_name_nothing_and_change_no_id(alice, api):
    bob = a_person("bob@example.com")
    chats(bob, UUID("01890a5d-ac96-774b-bcce-b4021111abcd"))
    assert call(api, "get_conversation", {"conversationId": "1111abcd/1"}).status_code == 404
    chats(alice, ONE)
    with acting_as(alice):
        assert short_ids(alice, [str(ONE)]) == {str(ONE): "1111abcd"}
    assert call(api, "get_conversation", {"conversationId": "1111abcd/1"}).json()["conversationId"] == str(ONE)


@pytest.mark.parametrize("tool", ["search_chat_history", "search_history", "search_memory", "get_conversation"])
@pytest.mark.parametrize("budget", [200, 400])
def test_the_text_of_each_tool_stays_within_its_budget_and_names_ids_that_open(alice, tool, budget):
    for number in range(12):
        turn = a_turn(alice, f"Cat number {number} sleeps " + "on the old red sofa by the window. " * number, "Nice!")
        with acting_as(alice):
            records.create(user=alice, content=f"Cat {number} " + "likes the sofa. " * number, now=NOW)
    index.embed_pending()
    asked = {"conversationId": str(turn.conversation_id)} if tool == "get_conversation" else {"query": "cat sofa"}
    found = mcp_registry.get(tool)
    text = found.text_of(found.call({**asked, "maxTokens": budget}, user=alice))
    assert tokens_of(text) <= budget
    ids = [line.removeprefix("id: ") for line in text.splitlines() if line.startswith("id: ")]
    assert ids
    for each in ids:
        assert mcp_registry.get("fetch").call({"id": each}, user=alice).content
