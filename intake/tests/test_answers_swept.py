"""A turn whose web process died is closed with what it had: when its lease has run out, and without Redis later."""

from datetime import timedelta

import pytest
import redis

from core.isolation.acting import Caller
from intake.chats import running, services
from intake.chats.running import close_abandoned_turns
from intake.chats.services import Progress
from intake.tests.factories import NOW, a_person
from intake.tests.test_chat_stream import wait_until

pytestmark = pytest.mark.django_db

LATER = NOW + timedelta(seconds=15)
IDLE = timedelta(minutes=2)


@pytest.fixture
def broker(settings):
    """A Redis that has run for longer than two leases."""
    settings.ANSWER_LEASE_SECONDS = 1
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        wait_until(lambda: client.info("server")["uptime_in_seconds"] > 2)
        yield client


def half_of(turn):
    return Progress(turn_id=turn.pk, user_id=turn.user_id, text="Half an")


@pytest.fixture
def turn():
    turn = services.begin_turn(caller=Caller(user_id=a_person().pk), message="Hi", conversation_id=None, now=NOW)
    services.save_progress([half_of(turn)], now=NOW)
    return turn


def test_a_turn_without_a_lease_is_closed_with_what_it_had(turn, broker):
    broker.delete(running.lease_key(turn.pk))
    assert close_abandoned_turns(now=LATER, idle=IDLE) == 1
    turn.refresh_from_db()
    assert (turn.assistant_message, turn.status) == ("Half an", "interrupted")


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_lease_keeps_its_own_attempt_open(turn, broker, attempt):
    broker.set(running.lease_key(turn.pk), attempt, ex=60)
    assert close_abandoned_turns(now=LATER, idle=IDLE) == (0 if attempt == turn.attempt else 1)


def test_a_turn_that_has_just_shown_a_sign_of_life_stays_open_also_without_a_lease(turn, broker):
    broker.delete(running.lease_key(turn.pk))
    services.save_progress([half_of(turn)], now=LATER)
    assert close_abandoned_turns(now=LATER + timedelta(seconds=0.9), idle=IDLE) == 0


def test_a_redis_that_has_just_started_says_nothing_about_leases(turn, settings):
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        client.delete(running.lease_key(turn.pk))
        is_new = client.info("server")["uptime_in_seconds"] <= 2 * settings.ANSWER_LEASE_SECONDS
    assert (running.without_lease([(turn.pk, 1)]) is None) is is_new


def test_without_redis_only_a_long_silence_closes_a_turn(turn, settings):
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert close_abandoned_turns(now=LATER, idle=IDLE) == 0
    assert close_abandoned_turns(now=NOW + IDLE + timedelta(seconds=1), idle=IDLE) == 1
