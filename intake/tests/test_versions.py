"""Versions: the turns of a conversation are a tree, and one path of it is chosen."""

import json
import random
from functools import partial

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from core.errors import Conflict, NotFound
from core.isolation.acting import acting_as
from intake.chats import deleting, exporting, services, versions
from intake.chats.reading import shared_to_show, turns_to_show
from intake.chats.tree import Tree, ancestors, leads_to, shared_turns, upward
from intake.chats.usage import Usage
from intake.models import Conversation, Turn
from intake.tests.factories import NOW, a_long_conversation, a_person, a_turn, caller_for

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def as_alice(alice):
    with acting_as(alice):
        yield


def say(user, message, *, conversation_id=None, parent=None):
    return services.create_turn(
        services.TurnRequest(message=message, conversation_id=conversation_id, parent=parent),
        caller=caller_for(user),
        now=NOW,
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
        usage = Usage(model="fable", input_tokens=10, output_tokens=5, seconds=seconds, finish_reason=reason)
        turn = services.finish_turn(
            turn_id=turn.pk, answer=services.Answer(text="Yes", status=Turn.Status.COMPLETE, usage=usage.as_data())
        )
        assert turn.is_cut == (reason == "length")
    assert turn.usage == {
        "model": "fable",
        "input_tokens": 20,
        "output_tokens": 10,
        "seconds": 3.5,
        "finish_reason": "stop",
    }


@pytest.mark.medium
@pytest.mark.usefixtures("as_alice")
@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_done_to_a_tree_it_stays_one_and_every_page_shows_one_path(alice, seed):
    """Turns are added anywhere, versions chosen, turns and subtrees deleted; each step is compared with a plain model."""
    chance = random.Random(seed)
    conversation = a_tree(alice, 0)
    parents = {1: 0}
    saved = 1
    caller = caller_for(alice)
    for _ in range(40):
        conversation.refresh_from_db()
        match chance.choice(["add", "add", "add", "version", "choose", "delete", "delete_from"]):
            case "add":
                parent = chance.choice([0, *parents])
                turn = a_turn(alice, "More", conversation=conversation, parent=parent)
                saved += 1
                assert turn.turn_number == saved
                parents[saved] = parent
            case "version":
                number = chance.choice([*parents])
                again = services.TurnRequest(conversation_id=conversation.pk, regenerate=number)
                turn = services.create_turn(again, caller=caller, now=NOW)
                services.finish_turn(turn_id=turn.pk, answer=services.Answer(text="Yes", status=Turn.Status.COMPLETE))
                saved += 1
                parents[saved] = parents[number]
            case "choose":
                number = chance.choice([*parents])
                versions.choose_version(caller=caller, conversation_id=conversation.pk, turn_number=number)
                conversation.refresh_from_db()
                assert number in path_in(parents, conversation.current_number)
            case "delete" if len(parents) > 1:
                number = chance.choice([*parents])
                deleting.delete_turn(caller=caller, conversation_id=conversation.pk, turn_number=number)
                above = parents.pop(number)
                parents = {each: above if parent == number else parent for each, parent in parents.items()}
            case "delete_from":
                number = chance.choice([*parents])
                gone = {each for each in parents if number in path_in(parents, each)}
                if len(gone) < len(parents):
                    deleting.delete_from(
                        caller=caller, conversation_id=conversation.pk, turn_number=number, expected=len(gone)
                    )
                    parents = {each: parent for each, parent in parents.items() if each not in gone}
        conversation.refresh_from_db()
        assert {number: parent or 0 for number, parent in numbers_and_parents(conversation).items()} == parents
        assert conversation.turn_count == saved
        chosen = path_in(parents, conversation.current_number)
        # The chosen path goes to an end.
        assert chosen[-1] not in parents.values()
        assert shown(conversation) == chosen
        number = chance.choice([*parents])
        around = shown(conversation, around=number)
        assert around == path_in(parents, around[-1])
        assert number in around
        assert shown(conversation, before=number) == path_in(parents, number)[:-1]
        connection.check_constraints()


def path_in(parents, number):
    path = []
    while number:
        path.insert(0, number)
        number = parents[number]
    return path


def shown(conversation, **where):
    window = turns_to_show(conversation=conversation, at_most=100, **where)
    return [turn.turn_number for turn in window.turns]


def test_pages_of_a_path_join_without_gap_or_double(alice):
    conversation = a_long_conversation(alice, 30, parents=(0, 1, 1, *range(3, 30)))
    whole, before = [], None
    while True:
        window = turns_to_show(conversation=conversation, at_most=7, before=before)
        whole = [turn.turn_number for turn in window.turns] + whole
        before = window.earlier
        if before is None:
            break
    assert whole == [1, *range(3, 31)]


def test_a_page_in_the_middle_follows_the_path_of_the_turn_that_was_asked_for(alice):
    # Two long arms: odd numbers and even ones.
    conversation = a_long_conversation(alice, 61, parents=(0, 1, *range(1, 60)))
    window = turns_to_show(conversation=conversation, at_most=10, around=30)
    numbers = [turn.turn_number for turn in window.turns]
    assert numbers == [*range(10, 30, 2)]
    assert (window.earlier, window.later) == (10, 30)


def test_a_thousand_turns_are_walked_with_the_statements_of_a_hundred(alice):
    long, short = a_long_conversation(alice, 1_000), a_long_conversation(alice, 100)

    def statements_of(function, **arguments):
        with CaptureQueriesContext(connection) as queries:
            function(**arguments)
        return len(queries)

    for name, of_long, of_short in (
        ("before", 500, 50),
        ("around", 500, 50),
        ("around", 3, 3),
        ("around", None, None),
    ):
        of_each = [
            statements_of(turns_to_show, conversation=chat, at_most=20, **{name: number})
            for chat, number in ((long, of_long), (short, of_short))
        ]
        assert of_each[0] == of_each[1], (name, of_long)
    choice = {"caller": caller_for(alice), "turn_number": 1}
    assert statements_of(versions.choose_version, conversation_id=long.pk, **choice) == statements_of(
        versions.choose_version, conversation_id=short.pk, **choice
    )


def test_a_branch_of_a_branch_shows_all_that_it_shares_and_pages_through_it(alice):
    caller = caller_for(alice)
    origin = a_tree(alice, 0, 1, 2, 3)
    branch = versions.branch(caller=caller, conversation_id=origin.pk, turn_number=3, now=NOW)
    a_turn(alice, "In the branch", conversation=branch)
    twig = versions.branch(caller=caller, conversation_id=branch.pk, turn_number=1, now=NOW)
    keys = [(origin.pk, 1), (origin.pk, 2), (origin.pk, 3), (branch.pk, 1)]
    above = shared_to_show(conversation=twig, at_most=10)
    assert [(turn.conversation_id, turn.turn_number) for turn in above.turns] == keys
    assert above.earlier is None
    page = shared_to_show(conversation=twig, at_most=2)
    assert page.earlier == keys[2]
    before = Turn.objects.get(conversation=page.earlier[0], turn_number=page.earlier[1])
    rest = shared_to_show(conversation=twig, at_most=2, before=before)
    assert [(turn.conversation_id, turn.turn_number) for turn in rest.turns] == keys[:2]


def test_a_branch_says_that_its_origin_has_been_deleted_and_goes_on(alice):
    caller = caller_for(alice)
    origin = a_tree(alice, 0)
    branch = versions.branch(caller=caller, conversation_id=origin.pk, turn_number=1, now=NOW)
    deleting.delete_conversation(caller=caller, conversation_id=origin.pk)
    branch.refresh_from_db()
    assert shared_to_show(conversation=branch, at_most=10).is_deleted
    turn = say(alice, "Still here", conversation_id=branch.pk)
    assert (turn.turn_number, turn.parent_number) == (1, None)


def test_more_than_was_announced_is_not_deleted(alice):
    conversation = a_tree(alice, 0, 1, 2)
    with pytest.raises(Conflict, match="3 turns, not 2"), transaction.atomic():
        deleting.delete_from(caller=caller_for(alice), conversation_id=conversation.pk, turn_number=1, expected=2)
    assert conversation.turns.count() == 3


def test_nobody_reaches_anybody_elses_versions(alice):
    conversation, bob = a_tree(alice, 0, 1), caller_for(a_person("bob@example.com"))
    where = {"caller": bob, "conversation_id": conversation.pk, "turn_number": 1}
    request = partial(services.TurnRequest, conversation_id=conversation.pk)
    requests = ({"regenerate": 1}, {"edit": 1, "message": "Mine"}, {"continue": 1})
    for attempt in (
        *(partial(services.create_turn, request(**about), caller=bob, now=NOW) for about in requests),
        lambda: versions.choose_version(**where),
        lambda: versions.branch(**where, now=NOW),
        lambda: deleting.delete_from(**where, expected=2),
    ):
        with pytest.raises(NotFound), transaction.atomic():
            attempt()
    assert Turn.objects.count() == 2


def test_an_export_tells_the_tree_the_chosen_path_and_where_a_branch_is_from(alice):
    conversation = a_tree(alice, 0, 1, 1)
    versions.choose_version(caller=caller_for(alice), conversation_id=conversation.pk, turn_number=2)
    versions.branch(caller=caller_for(alice), conversation_id=conversation.pk, turn_number=2, now=NOW)
    document = json.loads(b"".join(exporting.in_bytes({"conversations": exporting.conversations(user=alice)})))
    first, branch = document["conversations"]
    assert [(turn["turn_number"], turn["parent_number"]) for turn in first["turns"]] == [(1, None), (2, 1), (3, 1)]
    assert (first["current_number"], first["branched_from"]) == (2, None)
    assert (branch["branched_from"], branch["branched_after"]) == (str(conversation.pk), 2)


@pytest.mark.usefixtures("as_alice")
@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_ring_of_branches_ends_every_way_up(alice, length, client):
    ring = [a_tree(alice, 0) for _ in range(length)]
    for number, conversation in enumerate(ring):
        conversation.branched_from, conversation.branched_after = ring[number - 1].pk, 77
        conversation.save()
    assert shared_turns(ring[0], at_most=10) == []
    assert ancestors(ring[0].turns.get(), at_most=10) == []
    assert leads_to(ring[0], ring[-1].pk)
    client.force_login(alice)
    assert client.get(f"/c/{ring[0].pk}/").status_code == 200


@pytest.mark.usefixtures("as_alice")
def test_a_long_chain_of_empty_branches_is_read_only_so_far(alice, django_assert_max_num_queries, monkeypatch):
    monkeypatch.setattr("intake.chats.tree.MOST_ORIGINS", 5)
    origin = None
    for _ in range(20):
        origin = Conversation.objects.create(
            user=alice, branched_from=origin and origin.pk, branched_after=origin and 77
        )
    with django_assert_max_num_queries(10):
        assert shared_turns(origin, at_most=10) == []
    assert leads_to(origin, Conversation.objects.order_by("pk").first().pk)
