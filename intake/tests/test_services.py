"""Recording what is said: numbers without gaps, titles, retries, and what a visitor's words become."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller, acting_as
from intake.chats import services
from intake.chats.services import Answer, Progress
from intake.models import Conversation, Turn
from intake.tests.factories import NOW, a_person, a_visitor, caller_for

pytestmark = pytest.mark.django_db


def begin(caller, message="Hello", conversation_id=None):
    return services.create_turn(
        services.TurnRequest(message=message, conversation_id=conversation_id), caller=caller, now=NOW
    )


@pytest.mark.django_db(transaction=True)
def test_fifty_writers_at_once_leave_no_gap_and_no_double_in_the_turn_numbers():
    alice = a_person()
    caller = Caller(user_id=alice.pk)
    conversation_id = begin(caller).conversation_id

    def write(number):
        try:
            with acting_as(caller):
                return begin(caller, f"Message {number}", conversation_id).turn_number
        finally:
            connection.close()

    with ThreadPoolExecutor(10) as pool:
        numbers = list(pool.map(write, range(50)))
    assert sorted(numbers) == list(range(2, 52))


def test_a_nul_is_left_out_and_the_rest_is_kept():
    turn = begin(Caller(user_id=a_person().pk), "be\x00fore")
    assert turn.user_message == "before"


def test_a_blank_message_is_refused_by_name():
    with pytest.raises(InvalidInput) as refused:
        begin(Caller(user_id=a_person().pk), " \n\t")
    assert list(refused.value.errors) == ["message"]


def test_a_caller_who_is_nobody_owns_nothing():
    begin(caller_for(a_visitor()))
    begin(Caller(user_id=None))
    nobody = Caller(user_id=None)
    assert not Conversation.objects.for_caller(nobody).exists()
    assert not Turn.objects.for_caller(nobody).exists()


def test_a_person_cannot_reach_a_visitors_conversation():
    turn = begin(caller_for(a_visitor()))
    with pytest.raises(NotFound):
        begin(Caller(user_id=a_person().pk), "Mine?", turn.conversation_id)


def test_a_finished_turn_cannot_be_finished_again():
    turn = begin(Caller(user_id=a_person().pk))
    services.finish_turn(turn_id=turn.pk, answer=Answer(text="First", status=Turn.Status.COMPLETE))
    assert services.finish_turn(turn_id=turn.pk, answer=Answer(text="Second", status=Turn.Status.FAILED)) is None
    turn.refresh_from_db()
    assert (turn.assistant_message, turn.status) == ("First", "complete")


def test_another_message_after_a_failure_is_a_turn_of_its_own():
    caller = Caller(user_id=a_person().pk)
    turn = begin(caller, "First")
    services.finish_turn(turn_id=turn.pk, answer=Answer(text="", status=Turn.Status.FAILED))
    assert begin(caller, "Second", turn.conversation_id).turn_number == 2


def written(turn, text):
    return Progress(turn_id=turn.pk, user_id=turn.user_id, attempt=turn.attempt, text=text)


def test_progress_is_kept_only_while_the_turn_streams():
    caller = Caller(user_id=a_person().pk)
    turn = begin(caller)
    with acting_as(caller):
        services.finish_turn(turn_id=turn.pk, answer=Answer(text="Whole", status=Turn.Status.COMPLETE))
    services.save_progress([written(turn, "Who")], now=NOW)
    turn.refresh_from_db()
    assert turn.assistant_message == "Whole"


def test_a_writer_whose_turn_another_attempt_has_taken_over_changes_nothing():
    caller = Caller(user_id=a_person().pk)
    turn = begin(caller)
    assert services.interrupt_turn(turn_id=turn.pk, attempt=turn.attempt)
    again = services.reopen_turn(caller=caller, turn_id=turn.pk)
    assert (again.pk, again.attempt) == (turn.pk, turn.attempt + 1)
    assert not services.save_progress([written(turn, "Late")], now=NOW)
    late = Answer(text="Late", status=Turn.Status.COMPLETE)
    assert services.finish_turn(turn_id=turn.pk, attempt=turn.attempt, answer=late) is None
    assert not services.interrupt_turn(turn_id=turn.pk, attempt=turn.attempt)
    assert services.save_progress([written(again, "New")], now=NOW) == {turn.pk}
    turn.refresh_from_db()
    assert (turn.assistant_message, turn.status) == ("New", "streaming")


@pytest.mark.parametrize(
    ("message", "title"),
    [
        ("Plan a weekend", "Plan a weekend"),
        ("  Plan\ta   weekend \nand more", "Plan a weekend"),
        ("word " * 40, "word word word word word word word word word word word word word word word…"),
        ("x" * 100, "x" * 79 + "…"),
    ],
)
def test_a_title_is_the_first_line_cut_at_a_word(message, title):
    assert services.title_from(message.strip()) == title
