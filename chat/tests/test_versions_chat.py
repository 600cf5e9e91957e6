"""Versions over HTTP: another try, another wording, the rest of an answer, a branch; and what the model then hears."""

import pytest

from intake.chats import versions
from intake.models import Conversation, Turn
from intake.tests.factories import NOW, caller_for
from testing.model_server import BreakOff, Refuse, Say

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice(person, log_in):
    return log_in(person)


def conversation_id():
    return str(Conversation.objects.order_by("pk").first().pk)


def turns():
    return {
        turn.turn_number: (turn.parent_number, turn.user_message, turn.assistant_message)
        for turn in Turn.objects.in_order()
    }


def heard(model, request):
    """What the model was told besides its instructions."""
    told = [(message["role"], message["content"]) for message in model.requests[request]["messages"]]
    return [each for each in told if each[0] != "system"]


def text_of(events):
    return "".join(event.data["text"] for event in events if event.name == "delta")


def test_regenerating_makes_a_version_with_the_same_message_and_keeps_the_first_answer(alice, language_model):
    model = language_model(Say(("Six.",)), Say(("Seven.",)))
    alice.events("How many?")
    events = alice.events(conversation_id=conversation_id(), regenerate=1)
    assert events[0].data["turnNumber"] == 2
    assert turns() == {1: (None, "How many?", "Six."), 2: (None, "How many?", "Seven.")}
    assert heard(model, 1) == [("user", "How many?")]


def test_an_edited_message_is_a_version_in_its_place_and_the_model_hears_only_what_stands_above(alice, language_model):
    model = language_model(*[Say((f"Answer {number}.",)) for number in (1, 2, 3)])
    alice.events("First")
    alice.events("Second", conversation_id=conversation_id())
    alice.events("Second, better", conversation_id=conversation_id(), edit=2)
    assert turns()[3] == (1, "Second, better", "Answer 3.")
    assert heard(model, 2) == [("user", "First"), ("assistant", "Answer 1."), ("user", "Second, better")]


@pytest.mark.medium
def test_the_next_message_follows_the_version_that_was_chosen(alice, person, language_model):
    model = language_model(*[Say((f"Answer {number}.",)) for number in (1, 2, 3)])
    alice.events("First")
    alice.events(conversation_id=conversation_id(), regenerate=1)
    versions.choose_version(caller=caller_for(person), conversation_id=Conversation.objects.get().pk, turn_number=1)
    alice.events("Go on", conversation_id=conversation_id())
    assert turns()[3][0] == 1
    assert heard(model, 2) == [("user", "First"), ("assistant", "Answer 1."), ("user", "Go on")]


def test_a_message_may_name_the_turn_that_it_follows(alice, language_model):
    language_model(*[Say((f"Answer {number}.",)) for number in (1, 2, 3)])
    alice.events("First")
    alice.events("Second", conversation_id=conversation_id())
    alice.events("Instead", conversation_id=conversation_id(), parent=1)
    assert turns()[3][0] == 1


def test_an_answer_that_was_cut_says_so_and_goes_on_as_one_text(alice, language_model):
    model = language_model(Say(("One, two, ",), finish_reason="length"), Say(("three.",)))
    events = alice.events("Count")
    assert events[-1].data["usage"]["finishReason"] == "length"
    assert Turn.objects.get().is_cut
    events = alice.events(conversation_id=conversation_id(), **{"continue": 1})
    assert text_of(events) == "One, two, three."
    assert "One, two, three." in events[-1].data["html"]
    turn = Turn.objects.get()
    assert (turn.assistant_message, turn.status, turn.is_cut) == ("One, two, three.", "complete", False)
    assert heard(model, 1)[:2] == [("user", "Count"), ("assistant", "One, two, ")]
    assert turn.usage["model"] == "scripted"
    assert (turn.usage["input_tokens"], turn.usage["output_tokens"]) == (200, 40)


def test_a_continuation_that_fails_loses_nothing_and_can_be_tried_again(alice, language_model):
    language_model(Say(("One, two, ",), finish_reason="length"), Refuse(400), Say(("three.",)))
    alice.events("Count")
    events = alice.events(conversation_id=conversation_id(), **{"continue": 1})
    assert events[-1].name == "error"
    assert (Turn.objects.get().assistant_message, Turn.objects.get().status) == ("One, two, ", "interrupted")
    alice.events(conversation_id=conversation_id(), **{"continue": 1})
    assert Turn.objects.get().assistant_message == "One, two, three."


def test_what_broke_off_can_be_continued(alice, language_model):
    language_model(BreakOff(("The first half, ",)), Say(("the second.",)))
    alice.events("Tell me everything")
    alice.events(conversation_id=conversation_id(), **{"continue": 1})
    assert Turn.objects.get().assistant_message == "The first half, the second."


def test_a_whole_answer_is_not_continued(alice, language_model):
    language_model(Say(("All.",)))
    alice.events("Tell me everything")
    refused = alice.chat(conversation_id=conversation_id(), **{"continue": 1})
    assert (refused.status_code, refused.json()["code"]) == (400, "validation_error")
    assert Turn.objects.get().status == "complete"


def test_regenerating_a_failed_answer_is_a_retry_and_leaves_no_trace(alice, language_model):
    language_model(Refuse(400), Say(("There.",)))
    alice.events("Hello")
    alice.events(conversation_id=conversation_id(), regenerate=1)
    assert turns() == {1: (None, "Hello", "There.")}


def test_the_model_hears_the_shared_turns_above_a_branch(alice, person, language_model):
    model = language_model(*[Say((f"Answer {number}.",)) for number in (1, 2, 3)])
    alice.events("First")
    alice.events("Second", conversation_id=conversation_id())
    branch = versions.branch(
        caller=caller_for(person), conversation_id=Conversation.objects.get().pk, turn_number=1, now=NOW
    )
    events = alice.events("Elsewhere", conversation_id=str(branch.pk))
    assert (events[0].data["conversationId"], events[0].data["turnNumber"]) == (str(branch.pk), 1)
    assert heard(model, 2) == [("user", "First"), ("assistant", "Answer 1."), ("user", "Elsewhere")]


@pytest.mark.parametrize(
    "body",
    [
        {"regenerate": 1},
        {"message": "Hello", "regenerate": 1, "conversation_id": "here"},
        {"message": "Hello", "edit": 1, "parent": 1, "conversation_id": "here"},
        {"edit": 1, "conversation_id": "here"},
        {"message": "Hello", "edit": 0, "conversation_id": "here"},
        {"message": "Hello", "parent": -1, "conversation_id": "here"},
        {"message": "Hello", "parent": 2**31, "conversation_id": "here"},
        {"regenerate": "1", "conversation_id": "here"},
        {"resume": 1, "conversation_id": "here"},
        {},
    ],
)
def test_a_request_that_says_too_much_or_too_little_is_refused_and_nothing_is_saved(alice, language_model, body):
    language_model(Say(("Hello.",)))
    alice.events("Hello")
    refused = alice.chat(**{name: conversation_id() if value == "here" else value for name, value in body.items()})
    assert (refused.status_code, refused.json()["code"]) == (400, "validation_error")
    assert len(turns()) == 1


@pytest.mark.parametrize("request_", [{"regenerate": 9}, {"message": "Hello", "edit": 9}, {"continue": 9}])
def test_a_turn_that_is_not_there_is_not_found_like_a_conversation_that_is_not(alice, language_model, request_):
    language_model(Say(("Hello.",)))
    alice.events("Hello")
    refused = alice.chat(conversation_id=conversation_id(), **request_)
    nowhere = alice.chat(conversation_id="8c2f7a1e-0000-7000-8000-000000000000", **request_)
    assert (refused.status_code, refused.content) == (404, nowhere.content)


def test_the_same_key_regenerates_once(alice, language_model):
    language_model(Say(("One.",)), Say(("Two.",)))
    alice.events("Hello")
    body = {"conversation_id": conversation_id(), "regenerate": 1}
    for _ in range(2):
        alice.post("/api/v1/intake/chat", json=body, headers={**alice._csrf(), "Idempotency-Key": "again"})
    assert [answer for _, _, answer in turns().values()] == ["One.", "Two."]
