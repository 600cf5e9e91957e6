"""What was said in the open chat, and by a visitor in any: quoted without a model, and given to one that cannot see it."""

import pytest

from chat.agent import prompt
from intake.models import Conversation, Turn
from intake.tests.factories import a_turn
from testing.model_server import Say

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "The spare key is with our neighbour on the second floor."
QUESTION = "Where is the spare key?"
FILLING = "We sailed on past the islands, and saw seals. " * 60


def answer_to(client, question, **about):
    client.events(question, **about)
    return Turn.objects.latest("pk").assistant_message


def begin(client, message, **about):
    return {"conversation_id": client.events(message, **about)[0].data["conversationId"]}


@pytest.fixture(params=["visitor", "person"])
def anyone(request, visitor, log_in, person):
    return visitor if request.param == "visitor" else log_in(person)


@pytest.mark.medium
def test_recall_mode_quotes_the_open_chat_and_neither_the_question_nor_its_echo(anyone):
    here = begin(anyone, KEY)
    for question in (QUESTION, QUESTION.lower(), "Where's the spare key?"):
        answer = answer_to(anyone, question, **here)
        assert answer.startswith("Here is what you said or noted that comes closest:")
        assert answer.count("\n  > ") == 1 and f"> {KEY}" in answer
        assert f"/c/{here['conversation_id']}/?turn=1#turn-1" in answer


def test_recall_mode_quotes_the_open_chat_beside_other_chats_the_more_relevant_first(person, log_in):
    client = log_in(person)
    a_turn(person, "The spare tyre is in the shed")
    here = begin(client, KEY)
    answer = answer_to(client, QUESTION, **here)
    assert answer.index("neighbour") < answer.index("shed") if "shed" in answer else "neighbour" in answer


@pytest.mark.medium
def test_recall_mode_quotes_a_temporary_chat_and_one_without_memory(person, log_in):
    client = log_in(person)
    assert KEY in answer_to(client, QUESTION, **begin(client, KEY, temporary=True))
    here = begin(client, KEY)
    Conversation.objects.filter(pk=here["conversation_id"]).update(uses_memory=False)
    assert KEY in answer_to(client, QUESTION, **here)
    assert "Your memory is off" in answer_to(client, "How tall is the lighthouse?", **here)


def test_recall_mode_searches_nothing_for_a_visitor(visitor):
    events = visitor.events(QUESTION)
    assert {event.name for event in events} == {"turn", "delta", "done"}
    assert "Nothing earlier about this. Your message is saved." in Turn.objects.get().assistant_message


def test_a_visitors_other_chats_are_quoted_and_nobody_elses(visitor, new_client):
    begin(visitor, KEY)
    begin(new_client(), "The spare key is under the stone.")
    begin(visitor, "The spare key is a secret of this chat.", temporary=True)
    answer = answer_to(visitor, QUESTION)
    assert f"> {KEY}" in answer
    assert "stone" not in answer and "secret" not in answer


def test_only_the_newest_turns_of_a_visitor_are_read(visitor, monkeypatch):
    monkeypatch.setattr(prompt, "NEWEST_OF_A_VISITOR", 1)
    begin(visitor, KEY)
    begin(visitor, "Good morning")
    assert KEY not in answer_to(visitor, QUESTION)


def test_a_visitors_model_is_given_what_they_said_in_another_chat(visitor, new_client, language_model):
    begin(visitor, KEY)
    begin(new_client(), "The spare key is under the stone.")
    model = language_model(Say(("With your neighbour.",)))
    visitor.events(QUESTION)
    system = model.requests[0]["messages"][0]["content"]
    passages = system.split("may be about the question:\n")[1]
    assert passages.startswith("<data ") and f"User: {KEY}" in passages.split("</data")[0]
    assert "stone" not in system


@pytest.mark.medium
@pytest.mark.parametrize("is_temporary", [False, True])
def test_a_model_is_given_what_its_window_leaves_out_though_it_is_in_no_index(
    visitor, person, log_in, language_model, settings, is_temporary
):
    settings.LLM_CONTEXT_TOKENS = 9_000
    model = language_model(*[Say((FILLING,))] * 12, Say(("With your neighbour.",)))
    client, about = (log_in(person), {"temporary": True}) if is_temporary else (visitor, {})
    here = begin(client, KEY, **about)
    for number in range(11):
        client.events(f"Day {number}: {FILLING}", **here)
    client.events(QUESTION, **here)
    system, *others = model.requests[-1]["messages"]
    assert f"User: {KEY}" in system["content"].split("may be about the question:\n")[1]
    assert KEY not in str(others)
