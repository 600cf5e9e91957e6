"""The same request under the same key: one answer, stored once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event

import pytest
from django.db import connections
from django.utils import timezone

from core.errors import IdempotencyKeyReused, InvalidInput, SearchFailed, StillRunning
from core.isolation.acting import Caller, acting_as
from intake.chats import idempotency
from intake.models import Conversation, IdempotentAnswer
from intake.tests.factories import a_person

NOW = timezone.now()


@pytest.fixture
def alice(db):
    return a_person()


def write(user, *, key="k", data=None, now=NOW, run=None):
    def work():
        made = Conversation.objects.create(user=user, title="written")
        return {"z": str(made.id), "a": 1}

    with acting_as(user):
        return idempotency.once(
            caller=Caller(user_id=user.pk),
            key=key,
            operation="save_memory",
            data=data or {"b": 1},
            run=run or work,
            now=now,
        )


def test_the_same_request_gets_the_same_answer_and_writes_once(alice):
    first, second = write(alice), write(alice)
    assert list(second[0].items()) == list(first[0].items())
    assert (first[1], second[1]) == (False, True)
    assert Conversation.objects.count() == 1


def test_the_order_of_fields_makes_no_other_request(alice):
    write(alice, data={"a": 1, "b": 2})
    assert write(alice, data={"b": 2, "a": 1})[1]


def test_another_body_under_the_same_key_is_refused_and_writes_nothing(alice):
    write(alice)
    with pytest.raises(IdempotencyKeyReused):
        write(alice, data={"b": 2})
    assert Conversation.objects.count() == 1


def test_another_key_and_another_person_write_again(alice):
    write(alice)
    assert not write(alice, key="other")[1]
    assert not write(a_person("bob@example.com"))[1]


def test_after_a_day_the_key_is_new_and_nothing_is_kept(alice):
    write(alice)
    assert write(alice, now=NOW + timedelta(hours=23, minutes=59))[1]
    assert not write(alice, now=NOW + timedelta(hours=24, minutes=1))[1]
    assert IdempotentAnswer.objects.count() == 1


def test_a_failure_leaves_no_trace_and_the_key_is_good_again(alice):
    def fail():
        Conversation.objects.create(user=alice, title="half")
        raise SearchFailed

    with pytest.raises(SearchFailed):
        write(alice, run=fail)
    assert not Conversation.objects.exists()
    assert not write(alice)[1]


@pytest.mark.parametrize("key", ["", "a b", "ü", "x" * 256, "a\x00", "a\n"])
def test_a_key_that_is_none_is_refused(key):
    with pytest.raises(InvalidInput) as refused:
        idempotency.clean_key(key)
    assert list(refused.value.errors) == ["Idempotency-Key"]


@pytest.fixture
def two_at_once(transactional_db):
    """Starts one write that stops in the middle, and another beside it; the first goes on when told."""
    started, may_end = Event(), Event()

    def slow(user):
        def work():
            Conversation.objects.create(user=user, title="written")
            started.set()
            assert may_end.wait(30)
            return {"a": 1}

        return in_a_thread(write, user, run=work)

    def in_a_thread(function, *args, **kwargs):
        def work():
            try:
                return function(*args, **kwargs)
            finally:
                connections.close_all()

        return pool.submit(work)

    with ThreadPoolExecutor(2) as pool:
        yield slow, in_a_thread, started, may_end
        may_end.set()


def test_of_two_at_once_one_writes_and_the_other_waits_for_its_answer(two_at_once):
    slow, in_a_thread, started, may_end = two_at_once
    alice = a_person()
    first = slow(alice)
    assert started.wait(10)
    second = in_a_thread(write, alice)
    may_end.set()
    assert (first.result(10)[1], second.result(10)[1]) == (False, True)
    assert second.result()[0] == first.result()[0]
    assert Conversation.objects.count() == 1


def test_whoever_waits_too_long_is_told_to_try_again(two_at_once, monkeypatch):
    monkeypatch.setattr(idempotency, "WAIT_SECONDS", 1)
    slow, in_a_thread, started, may_end = two_at_once
    alice = a_person()
    first = slow(alice)
    assert started.wait(10)
    with pytest.raises(StillRunning):
        in_a_thread(write, alice).result(10)
    may_end.set()
    first.result(10)
    assert write(alice)[1]
