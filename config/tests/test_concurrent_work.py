"""One person's work at a time is bounded, however it is asked for, and its place is free again however it ends."""

import asyncio
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import httpx2
import pytest
from django.utils import timezone

from agent_tools.authentication import create_token
from agent_tools.tests.mcp_messages import call
from agent_tools.tools import registry
from config.asgi import RUNNING_AT_ONCE, Turns
from core.errors import RateLimited
from core.rate_limits import running_calls, when_user_is_known
from intake.chats.running import LEASE
from intake.models import Turn
from testing.model_server import Hang, Say

pytestmark = pytest.mark.django_db(transaction=True)

TOOL = "search_chat_history"
SEARCH = f"/api/v1/tools/{TOOL}/"
CHAT = "/api/v1/intake/chat"
QUERY = {"query": "cats"}


def until(is_so, seconds=10):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class HeldTool:
    """The search, which waits within a call until it is let go."""

    def __init__(self, monkeypatch):
        self.tool = registry.get(TOOL)
        self.original, self.go, self.inside = self.tool.run, threading.Event(), threading.Semaphore(0)
        self.monkeypatch = monkeypatch

    def run(self, requested, user):
        self.inside.release()
        assert self.go.wait(20)
        return self.original(requested, user)

    def __enter__(self):
        object.__setattr__(self.tool, "run", self.run)
        return self

    def __exit__(self, *_):
        self.go.set()
        object.__setattr__(self.tool, "run", self.original)


@pytest.fixture
def held(monkeypatch):
    with HeldTool(monkeypatch) as tool:
        yield tool


def by_rest(server, secret):
    with httpx2.Client(base_url=server, timeout=30) as client:
        return client.post(SEARCH, json=QUERY, headers={"Authorization": f"Bearer {secret}"})


def by_mcp(server, secret):
    return call(server, secret, TOOL, QUERY)


@pytest.mark.parametrize("ask", [by_rest, by_mcp])
def test_a_persons_calls_beyond_the_limit_are_told_to_come_again_and_others_are_not(
    limited, server, held, person, stranger, ask
):
    limited(calls=2)
    mine, theirs = (create_token(user=user).secret for user in (person, stranger))
    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(ask, server, mine) for _ in range(2)]
        for _ in running:
            assert held.inside.acquire(timeout=10)
        refused = ask(server, mine)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert (refused.headers["Retry-After"], "2 of your calls" in refused.json()["detail"]) == ("1", True)
        others = pool.submit(ask, server, theirs)
        assert held.inside.acquire(timeout=10)
        held.go.set()
        assert [each.result().status_code for each in (*running, others)] == [200, 200, 200]
    until(lambda: not running_calls.of(person.pk))
    assert ask(server, mine).status_code == 200


@pytest.mark.parametrize("ask", [by_rest, by_mcp])
def test_a_call_that_fails_leaves_its_place(limited, server, held, person, ask):
    limited(calls=1)
    secret = create_token(user=person).secret

    def fail(requested, user):
        raise RuntimeError("broken")

    object.__setattr__(held.tool, "run", fail)
    for _ in range(3):
        assert ask(server, secret).status_code == (500 if ask is by_rest else 200)
        until(lambda: not running_calls.of(person.pk))


@pytest.mark.parametrize("ask", [by_rest, by_mcp])
def test_a_call_whose_client_leaves_leaves_its_place(limited, server, held, person, ask, monkeypatch):
    limited(calls=1)
    secret = create_token(user=person).secret
    monkeypatch.setattr(httpx2.Client, "post", _impatient(httpx2.Client.post))
    monkeypatch.setattr(httpx2, "post", _impatient(httpx2.post))
    with pytest.raises(httpx2.ReadTimeout):
        ask(server, secret)
    monkeypatch.undo()
    held.go.set()
    until(lambda: not running_calls.of(person.pk))
    assert ask(server, secret).status_code == 200


def _impatient(function):
    return lambda *args, **kwargs: function(*args, **{**kwargs, "timeout": 1})


def test_pages_of_a_person_count_with_their_calls(limited, server, held, person, log_in):
    client, secret = log_in(person), create_token(user=person).secret
    limited(calls=1)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(by_rest, server, secret)
        assert held.inside.acquire(timeout=10)
        refused = client.get("/search/", params={"q": "cats"})
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
        held.go.set()
        assert running.result().status_code == 200
    until(lambda: not running_calls.of(person.pk))
    assert client.get("/search/", params={"q": "cats"}).status_code == 200


def known_tokens(server, *users):
    """A token of each, with which the web process has answered before."""
    secrets = [create_token(user=user).secret for user in users]
    for secret in secrets:
        answer = httpx2.get(f"{server}/api/v1/tools/", headers={"Authorization": f"Bearer {secret}"}, timeout=30)
        assert answer.status_code == 200
    return secrets


def test_a_callers_third_request_waits_for_the_others_and_for_nobody_elses(limited, server, held, person, stranger):
    limited(calls=8)
    mine, theirs = known_tokens(server, person, stranger)
    with ThreadPoolExecutor(5) as pool:
        running = [pool.submit(by_rest, server, mine) for _ in range(RUNNING_AT_ONCE + 2)]
        for _ in range(RUNNING_AT_ONCE):
            assert held.inside.acquire(timeout=10)
        assert not held.inside.acquire(timeout=0.5)
        running.append(pool.submit(by_rest, server, theirs))
        assert held.inside.acquire(timeout=10)
        held.go.set()
        assert [each.result().status_code for each in running] == [200] * len(running)


def test_beyond_the_limit_a_call_waits_a_second_and_is_refused_before_a_thread(limited, server, held, person):
    limited(calls=2)
    (secret,) = known_tokens(server, person)
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(by_rest, server, secret) for _ in range(2)]
        for _ in running:
            assert held.inside.acquire(timeout=10)
        began = time.monotonic()
        refused = by_rest(server, secret)
        assert time.monotonic() - began >= 1
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert (refused.headers["Retry-After"], "2 of your calls" in refused.json()["detail"]) == ("1", True)
        in_time = pool.submit(by_rest, server, secret)
        time.sleep(0.2)
        held.go.set()
        assert [each.result().status_code for each in (*running, in_time)] == [200] * 3


class Requests:
    """Requests that take a turn and keep it until they are let go."""

    def __init__(self):
        self.turns, self.running, self.go = Turns(), [], asyncio.Event()

    async def _take(self, credentials, *, is_users):
        async with self.turns.turn(credentials):
            self.running.append(credentials)
            if is_users:
                # As a view does, in its thread.
                await asyncio.to_thread(when_user_is_known.get() or (lambda: None))
            await self.go.wait()

    def begin(self, *credentials, is_users=False):
        return [asyncio.create_task(self._take(each, is_users=is_users)) for each in credentials]


def test_made_up_tokens_are_one_caller_and_those_of_users_leave_its_queue():
    async def try_out():
        requests = Requests()
        begun = requests.begin(*[f"made up {number}".encode() for number in range(9)])
        await asyncio.sleep(0.05)
        assert len(requests.running) == RUNNING_AT_ONCE
        requests.go.set()
        await asyncio.gather(*begun)
        requests.go.clear()
        requests.running.clear()
        begun = requests.begin(*[f"token {number}".encode() for number in range(9)], is_users=True)
        await asyncio.sleep(0.5)
        assert len(requests.running) == 9
        # Known by now, each has a queue of its own beside the unknown.
        begun += requests.begin(*[f"made up {number}".encode() for number in range(RUNNING_AT_ONCE)])
        begun += requests.begin(*[f"token {number}".encode() for number in range(9)])
        await asyncio.sleep(0.05)
        assert len(requests.running) == 18 + RUNNING_AT_ONCE
        requests.go.set()
        await asyncio.gather(*begun)

    asyncio.run(try_out())


def test_a_request_that_leaves_while_it_waits_keeps_no_place(limited):
    limited(calls=RUNNING_AT_ONCE + 1)

    async def try_out():
        requests = Requests()
        requests.go.set()
        await asyncio.gather(*requests.begin(b"mine", is_users=True))
        await asyncio.sleep(0.05)
        requests.go.clear()
        running = requests.begin(*[b"mine"] * RUNNING_AT_ONCE)
        for _ in range(3):
            (waiting,) = requests.begin(b"mine")
            await asyncio.sleep(0.05)
            waiting.cancel()
            await asyncio.wait([waiting])
        (waiting,), (refused,) = requests.begin(b"mine"), requests.begin(b"mine")
        await asyncio.sleep(1.2)
        assert isinstance(refused.exception(), RateLimited)
        assert not waiting.done()
        requests.go.set()
        await asyncio.gather(*running, waiting)

    asyncio.run(try_out())


@contextmanager
def being_answered(client, *messages):
    """Each is being answered within the block; at its end their writer stops them."""
    with ExitStack() as stack:
        readers = []
        for message in messages:
            answer = stack.enter_context(client.stream("POST", CHAT, json={"message": message}, headers=client._csrf()))
            assert answer.status_code == 200
            # A reader that is dropped leaves.
            readers.append(answer.iter_lines())
            next(readers[-1])
        yield
    for turn_id in Turn.objects.filter(status=Turn.Status.STREAMING).values_list("pk", flat=True):
        client.post(f"/api/v1/intake/turns/{turn_id}/stop", headers=client._csrf())


def streaming():
    return Turn.objects.filter(status=Turn.Status.STREAMING).count()


def test_a_persons_answers_beyond_the_limit_are_told_to_come_again_and_keep_nothing(
    limited, person, stranger, log_in, language_model
):
    limited(answers=2)
    language_model(Hang(), Hang(), Say(("Hello.",)), Say(("Again.",)))
    client = log_in(person)
    with being_answered(client, "One", "Two"):
        refused = client.chat("Three")
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
        assert "2 of your answers" in refused.json()["detail"]
        assert not Turn.objects.filter(user_message="Three").exists()
        assert log_in(stranger).events("Hello")[-1].name == "done"
    until(lambda: streaming() == 0)
    assert client.events("Three")[-1].name == "done"


def test_of_many_that_begin_at_once_no_more_are_answered(limited, person, log_in, language_model):
    limited(answers=2)
    language_model(*[Hang()] * 8)
    client = log_in(person)
    token = client._csrf()
    begun = threading.Barrier(8)

    def ask(number):
        begun.wait(10)
        with client.stream("POST", CHAT, json={"message": f"{number}"}, headers=token) as answer:
            if answer.status_code == 200:
                lines = answer.iter_lines()
                next(lines)
                all_asked.wait(20)
            return answer.status_code

    all_asked = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(ask, number) for number in range(8)]
        until(lambda: sum(each.done() for each in running) == 6, seconds=20)
        all_asked.set()
        assert Counter(each.result() for each in running) == {200: 2, 429: 6}


def test_an_answer_whose_server_was_killed_gives_its_place_back(settings, person, log_in, language_model, limited):
    limited(answers=1)
    language_model(Hang(), Say(("Here.",)))
    client = log_in(person)
    with being_answered(client, "One"):
        assert client.chat("Two").status_code == 429
        long_ago = timezone.now() - LEASE - timedelta(seconds=1)
        Turn.objects.filter(status=Turn.Status.STREAMING).update(updated_at=long_ago)
        assert client.events("Two")[-1].name == "done"


def test_a_visitors_pages_have_a_limit_as_well(limited, server, visitor, monkeypatch):
    visitor.events("Hello")
    user_id = Turn.objects.get(user_message="Hello").user_id
    limited(calls=1)
    running_calls.begin(user_id)
    try:
        assert visitor.get("/conversations/").status_code == 429
    finally:
        running_calls.end(user_id)
    assert visitor.get("/conversations/").status_code == 200
