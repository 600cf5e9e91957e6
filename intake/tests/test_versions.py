"""Versions: the turns of a conversation are a tree, and one path of it is chosen."""

import pytest
from django.db import IntegrityError, connection, transaction

from core.errors import NotFound
from intake import deleting, services
from intake.models import Conversation, Turn
from intake.paths import Tree, upward
from intake.tests.factories import NOW, a_person, a_turn, caller_for

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


def say(user, message, *, conversation_id=None, parent=None):
    return services.begin_turn(
        caller=caller_for(user), message=message, conversation_id=conversation_id, parent=parent, now=NOW
    )


def a_tree(user, *parents):
    """A conversation whose turns have these parents, in the order of saving; 0 is none."""
    conversation = Conversation.objects.create(user=user, title="Message 1")
    for number, parent in enumerate(parents, 1):
        services.save_exchange(
            conversation=conversation,
            user_message=f"Message {number}",
            assistant_message=f"Answer {number}",
            said_at=NOW,
            parent=parent,
        )
    return conversation


def numbers_and_parents(conversation):
    return dict(conversation.turns.values_list("turn_number", "parent_number"))


def test_a_message_follows_the_end_of_the_chosen_path(alice):
    first = say(alice, "Hello")
    second = say(alice, "And then", conversation_id=first.conversation_id)
    assert (first.parent_number, second.parent_number) == (None, 1)
    assert Conversation.objects.get().current_number == 2


def test_a_message_after_an_earlier_turn_is_a_version_of_what_followed_it_with_the_next_number(alice):
    conversation = a_tree(alice, 0, 1, 2)
    turn = say(alice, "Something else", conversation_id=conversation.pk, parent=1)
    assert (turn.turn_number, turn.parent_number) == (4, 1)
    conversation.refresh_from_db()
    assert (conversation.turn_count, conversation.current_number) == (4, 4)
    assert Tree.of(conversation).versions_of(2) == [2, 4]


def test_a_message_may_be_another_first_one(alice):
    conversation = a_tree(alice, 0, 1)
    turn = say(alice, "A better beginning", conversation_id=conversation.pk, parent=services.NO_PARENT)
    assert turn.parent_number is None
    assert Tree.of(conversation).versions_of(1) == [1, 3]


def test_a_parent_that_is_not_there_is_not_found_and_nothing_is_saved(alice):
    conversation = a_tree(alice, 0, 1)
    with pytest.raises(NotFound), transaction.atomic():
        say(alice, "Hello", conversation_id=conversation.pk, parent=7)
    assert conversation.turns.count() == 2


def test_the_database_refuses_a_turn_that_follows_itself_or_a_later_one(alice):
    conversation = a_tree(alice, 0, 1)
    for parent in (1, 2, 0):
        with pytest.raises(IntegrityError), transaction.atomic():
            conversation.turns.filter(turn_number=1).update(parent_number=parent)


def test_the_database_refuses_a_parent_of_another_conversation(alice):
    one, other = a_tree(alice, 0), a_tree(alice, 0, 1, 2)
    with pytest.raises(IntegrityError), transaction.atomic():
        Turn.objects.create(conversation=one, user=alice, turn_number=9, parent_number=2, user_message="Hello")
        connection.check_constraints()
    assert numbers_and_parents(other) == {1: None, 2: 1, 3: 2}


def test_the_same_message_after_a_failure_takes_up_the_failed_turn_only_where_it_would_follow_it(alice):
    conversation = a_tree(alice, 0)
    failed = say(alice, "And then?", conversation_id=conversation.pk)
    services.finish_turn(turn_id=failed.pk, answer=services.Answer(text="", status=Turn.Status.FAILED))
    elsewhere = say(alice, "And then?", conversation_id=conversation.pk, parent=1)
    again = say(alice, "And then?", conversation_id=conversation.pk, parent=failed.turn_number)
    assert elsewhere.pk != failed.pk
    assert again.pk == failed.pk


def test_deleting_a_turn_moves_what_follows_up_to_what_it_followed(alice):
    conversation = a_tree(alice, 0, 1, 2, 1, 2)
    branch = Conversation.objects.create(user=alice, branched_from=conversation.pk, branched_after=2)
    deleting.delete_turn(caller=caller_for(alice), conversation_id=conversation.pk, turn_number=2)
    assert numbers_and_parents(conversation) == {1: None, 3: 1, 4: 1, 5: 1}
    branch.refresh_from_db()
    assert branch.branched_after == 1


def test_deleting_the_end_of_the_chosen_path_chooses_the_newest_below_what_it_followed(alice):
    conversation = a_tree(alice, 0, 1, 2, 2, 1)
    Conversation.objects.filter(pk=conversation.pk).update(current_number=3)
    deleting.delete_turn(caller=caller_for(alice), conversation_id=conversation.pk, turn_number=3)
    conversation.refresh_from_db()
    assert conversation.current_number == 4


def test_the_way_up_stops_after_as_many_turns_as_were_asked_for(alice):
    conversation = a_tree(alice, 0, 1, 1, 2, 4)
    way = {"user_id": alice.pk, "conversation_id": conversation.pk}
    assert upward(number=5, **way) == [5, 4, 2, 1]
    assert upward(number=5, at_most=2, **way) == [5, 4]
    assert upward(number=6, **way) == []


def test_what_an_answer_took_is_kept_and_added_up_when_it_is_continued(alice):
    turn = a_turn(alice, "Hello")
    for seconds, reason in ((1.5, "length"), (2.0, "stop")):
        Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.STREAMING)
        usage = services.Usage(model="fable", input_tokens=10, output_tokens=5, seconds=seconds, finish_reason=reason)
        turn = services.finish_turn(
            turn_id=turn.pk, answer=services.Answer(text="Yes", status=Turn.Status.COMPLETE, usage=usage)
        )
        assert turn.is_cut == (reason == "length")
    assert turn.usage == {
        "model": "fable",
        "input_tokens": 20,
        "output_tokens": 10,
        "seconds": 3.5,
        "finish_reason": "stop",
    }
