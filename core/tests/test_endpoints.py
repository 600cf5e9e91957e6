"""Network endpoints: never called inside a transaction, and left alone after time-outs in a row."""

import asyncio
import logging

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, transaction

from core import resilience
from core.isolation.acting import Caller, acting_as
from core.resilience import Endpoint, LeftAlone, refuse_in_transaction


@pytest.mark.django_db(transaction=True)
def test_an_endpoint_is_not_called_in_a_transaction():
    refuse_in_transaction("The model")
    with transaction.atomic(), pytest.raises(RuntimeError, match="The model"):
        refuse_in_transaction("The model")


@pytest.mark.django_db
def test_in_a_test_that_does_not_commit_only_acting_as_a_user_counts():
    assert connection.in_atomic_block
    refuse_in_transaction("The model")
    caller = Caller(user_id=get_user_model().objects.create_user("a@example.com").pk)
    with acting_as(caller), pytest.raises(RuntimeError, match="inside a database transaction"):
        refuse_in_transaction("The model")


@pytest.mark.django_db(transaction=True)
def test_outside_tests_a_call_in_a_transaction_is_logged_and_made(settings, caplog):
    settings.REFUSES_CALLS_IN_TRANSACTIONS = False
    endpoint = Endpoint("The model")
    with transaction.atomic(), endpoint.call(TimeoutError):
        pass
    (record,) = (one for one in caplog.records if one.levelno == logging.ERROR)
    assert "The model is called inside a database transaction" in record.message
    assert record.stack_info


@pytest.mark.django_db(transaction=True)
def test_an_event_loop_calls_an_endpoint_though_django_gives_it_no_connection():
    async def call():
        with Endpoint("A server of tools").call(TimeoutError):
            return "answered"

    assert asyncio.run(call()) == "answered"


def time_out(endpoint):
    with pytest.raises(TimeoutError), endpoint.call(TimeoutError):
        raise TimeoutError


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(resilience, "monotonic", lambda: now[0])
    return now


def test_after_three_timeouts_an_endpoint_is_left_alone_for_ten_seconds(clock):
    endpoint = Endpoint("The model")
    for _ in range(3):
        time_out(endpoint)
    with pytest.raises(LeftAlone, match="The model"), endpoint.call(TimeoutError):
        raise AssertionError("was called")
    clock[0] += 10.1
    with endpoint.call(TimeoutError):
        pass


def test_after_the_pause_one_more_timeout_is_enough(clock):
    endpoint = Endpoint("The model")
    for _ in range(3):
        time_out(endpoint)
    clock[0] += 10.1
    time_out(endpoint)
    with pytest.raises(LeftAlone), endpoint.call(TimeoutError):
        raise AssertionError("was called")


def test_after_the_pause_only_one_call_at_a_time_tries_the_endpoint(clock):
    endpoint = Endpoint("The model")
    for _ in range(3):
        time_out(endpoint)
    clock[0] += 10.1
    with endpoint.call(TimeoutError), pytest.raises(LeftAlone), endpoint.call(TimeoutError):
        raise AssertionError("was called")
    assert not endpoint.is_left_alone
    with endpoint.call(TimeoutError), endpoint.call(TimeoutError):
        pass


def test_an_answer_between_timeouts_begins_the_count_anew(clock):
    endpoint = Endpoint("The model")
    for _ in range(4):
        time_out(endpoint)
        time_out(endpoint)
        with endpoint.call(TimeoutError):
            pass


def test_an_error_that_comes_at_once_is_no_timeout(clock):
    endpoint = Endpoint("The model")
    for _ in range(5):
        with pytest.raises(ValueError), endpoint.call(TimeoutError):
            raise ValueError
