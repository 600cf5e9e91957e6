"""A turn whose web process died is closed with what it had, when its lease has run out and nobody renews it."""

from datetime import timedelta

import pytest

from core.isolation.acting import Caller
from intake.chats import running, services
from intake.chats.running import close_abandoned_turns
from intake.chats.services import Progress
from intake.tests.factories import NOW, a_person

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(seconds=15)


def renew(turn, at):
    services.save_progress([Progress(turn_id=turn.pk, user_id=turn.user_id, text="Half an")], now=at)


@pytest.fixture
def turn():
    turn = services.create_turn(services.TurnRequest(message="Hi"), caller=Caller(user_id=a_person().pk), now=NOW)
    renew(turn, NOW)
    return turn


@pytest.fixture(autouse=True)
def meanwhile(monkeypatch):
    """What happens between the sweep's two looks at a turn."""
    events = []
    monkeypatch.setattr(running.time, "sleep", lambda _: [event() for event in events])
    return events


def test_a_turn_whose_lease_has_run_out_is_closed_with_what_it_had(turn):
    assert close_abandoned_turns(now=LATER) == 1
    turn.refresh_from_db()
    assert (turn.assistant_message, turn.status) == ("Half an", "interrupted")


def test_a_turn_that_was_renewed_within_its_lease_stays_open(turn):
    assert close_abandoned_turns(now=NOW + timedelta(seconds=7)) == 0


def test_a_writer_that_renews_after_the_database_was_away_stays_open(turn, meanwhile):
    meanwhile.append(lambda: renew(turn, LATER))
    assert close_abandoned_turns(now=LATER) == 0


def test_an_answer_that_is_begun_again_between_the_two_looks_stays_open(turn, meanwhile):
    meanwhile += [
        lambda: services.interrupt_turn(turn_id=turn.pk, attempt=1),
        lambda: services.reopen_turn(caller=Caller(user_id=turn.user_id), turn_id=turn.pk),
    ]
    assert close_abandoned_turns(now=LATER) == 0
    turn.refresh_from_db()
    assert (turn.status, turn.attempt) == ("streaming", 2)
