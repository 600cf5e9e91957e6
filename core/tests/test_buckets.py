"""What is asked of Redis is answered for the one who asked, also after Redis forgot its scripts or its clients."""

import time

import pytest
import redis

from core import rate_limits
from core.buckets import Asked, Bucket
from core.errors import RateLimited

HOUR = 3_600_000


@pytest.fixture
def ask(settings):
    """Takes from a bucket of some size that no other test has."""
    key = f"limit:test:{time.monotonic_ns()}"

    def asked(*, size: int) -> Asked:
        return Asked(settings.REDIS_URL, [Bucket(f"{key}:{size}", interval=HOUR / size, room=HOUR)])

    return asked


@pytest.fixture
def server(settings):
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        yield client


def test_the_answer_is_how_long_until_there_is_something_in_the_bucket(ask):
    waits = [ask(size=2).answer() for _ in range(3)]
    assert waits[:2] == [0, 0]
    assert HOUR / 2 - 10_000 < waits[2] <= HOUR / 2


def test_two_who_ask_at_once_have_an_answer_each(ask):
    assert ask(size=1).answer() == 0
    first, second = ask(size=1), ask(size=2)
    assert second.answer() == 0
    assert first.answer() > 0


def test_an_answer_that_nobody_read_is_nobody_elses(ask):
    assert ask(size=1).answer() == 0
    ask(size=1)
    assert ask(size=2).answer() == 0


def test_redis_is_told_the_script_again_when_it_has_forgotten_it(ask, server):
    assert ask(size=3).answer() == 0
    server.script_flush()
    assert [ask(size=3).answer() for _ in range(2)] == [0, 0]


def test_a_connection_that_redis_has_closed_is_made_again(ask, server):
    assert ask(size=3).answer() == 0
    server.client_kill_filter(_type="normal", skipme=True)
    assert [ask(size=3).answer() for _ in range(3)][:2] == [0, 0]


def test_work_that_fails_is_counted_and_its_failure_is_what_is_told(settings):
    settings.SECRET_KEY = f"for this test {time.monotonic_ns()}"
    settings.RATE_LIMITS = {"api": "2/hour"}
    rate_limits.bypass.until = 0.0
    for _ in range(3):
        with pytest.raises(LookupError), rate_limits.counting(("api", 1)):
            raise LookupError
    with pytest.raises(RateLimited), rate_limits.counting(("api", 1)):
        pass
