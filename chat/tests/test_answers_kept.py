"""What there is of answers that are being written: saved together, and none at the cost of another."""

import asyncio

import pytest
from django.db import transaction

from chat.answers.saver import _save_together
from core.isolation.acting import Caller
from intake.chats import services
from intake.chats.services import Progress
from intake.tests.factories import NOW, a_person

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def turns():
    """Three people's, each being answered."""
    people = [a_person(f"{name}@example.com") for name in ("alice", "bob", "carol")]
    request = services.TurnRequest(message="Hi")
    return [services.create_turn(request, caller=Caller(user_id=person.pk), now=NOW) for person in people]


def part_of(turn, **fields):
    return Progress(turn_id=turn.pk, user_id=turn.user_id, text=f"Half of {turn.pk}", **fields)


def texts(turns):
    for turn in turns:
        turn.refresh_from_db()
    return [turn.assistant_message for turn in turns]


def test_what_the_database_refuses_of_one_answer_costs_the_others_nothing(turns, caplog):
    first, second, third = turns
    parts = [part_of(first), part_of(second, tool_calls=[{"input": "\x00"}]), part_of(third)]
    asyncio.run(_save_together(parts))
    assert texts(turns) == [f"Half of {first.pk}", "", f"Half of {third.pk}"]
    assert f"turn {second.pk} cannot be saved" in caplog.text


def test_a_turn_that_somebody_holds_keeps_no_other_answer_waiting(turns):
    first, *others = turns
    with transaction.atomic():
        type(first).objects.select_for_update().get(pk=first.pk, user=first.user)
        saved = asyncio.run(_save_together([part_of(turn) for turn in turns]))
    assert saved == {turn.pk for turn in others}
    assert texts(turns) == ["", *(f"Half of {turn.pk}" for turn in others)]
