"""One person's work at a time is bounded, however it is asked for, and its place is free again however it ends."""

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
from intake.chats.running import LEASE
from intake.models import Turn
from testing.model_server import CallTool, Hang, Say

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
    assert client.get("/search/", params={"q": "cats"}).status_code == 200


def test_a_call_of_a_chats_answer_takes_a_turn_of_its_person(server, held, person, log_in, language_model):
    client, secret = log_in(person), create_token(user=person).secret
    language_model(CallTool(TOOL, QUERY), Say(("Found.",)))
    with ThreadPoolExecutor(5) as pool:
        answer = pool.submit(client.events, "Where are they?")
        assert held.inside.acquire(timeout=10)
        running = [pool.submit(by_rest, server, secret) for _ in range(4)]
        # A person has two turns.
        assert held.inside.acquire(timeout=10)
        assert not held.inside.acquire(timeout=1)
        held.go.set()
        assert answer.result()[-1].name == "done"
        assert [each.result().status_code for each in running] == [200] * 4


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
