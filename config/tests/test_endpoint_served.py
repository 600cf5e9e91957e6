"""A program's requests at two web processes at once find and begin the same chats as at one."""

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import pytest

from agent_tools.tests.test_context import BUILT_IN_MODEL
from chat.endpoint.tests.test_conversations import Program
from chat.endpoint.tests.test_memory import remembered
from config.tests.test_chat_served import Web, model, served, wait_until  # noqa: F401 - fixtures
from core.isolation.acting import acting_as
from intake.models import Turn
from memory.models import IndexedText
from testing.fixtures import Client
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

HI = [{"role": "user", "content": "Hi"}]
HELLO = "Hello! How can I help?"


class Phone(Program):
    """A program with one key, each of whose requests goes to the next process."""

    def __init__(self, clients, person):
        super().__init__(clients[0], person)
        self.clients, self.next_client = clients, cycle(clients)
        for client in clients:
            client.headers["Authorization"] = self.http.headers["Authorization"]

    def post(self, *args, **fields):
        self.http = next(self.next_client)
        return super().post(*args, **fields)

    def at_once(self, messages, headers=None, times=4):
        """So many requests to each process."""
        body = {"model": "recollect", "messages": messages}
        with ThreadPoolExecutor(2 * times) as pool:
            asked = [
                pool.submit(client.post, "/v1/chat/completions", json=body, headers=headers)
                for client in self.clients * times
            ]
            return [each.result() for each in asked]


@pytest.fixture(scope="module")
def webs(served):  # noqa: F811
    first, _ = served
    second = Web(first.environment, first.log)
    try:
        second.start()
        yield first, second
    finally:
        second.end()


@pytest.fixture
def phone(person, webs):
    if webs[0].process.poll() is not None:
        webs[0].start()
    with Client(base_url=webs[0].address, timeout=60) as one, Client(base_url=webs[1].address, timeout=60) as other:
        yield Phone([one, other], person)


def test_two_hundred_turns_sent_growing_to_two_processes_are_one_chat(phone, person, webs, model, settings):  # noqa: F811
    """Also after one of them has been started again; and no recalled text is indexed."""
    settings.EMBEDDER = BUILT_IN_MODEL
    remembered(person, "We moved the orders to Postgres at Zanzibar")
    question = "Where did we move the orders to Postgres, for the {}th time?"
    model.follow(*(Say((f"Answer {n}.",)) for n in range(200)))
    for n in range(200):
        if n == 100:
            webs[0].end()
            webs[0].start()
        phone.say(question.format(n), model="recollect-plain" if n % 20 else "recollect")
    assert phone.shape() == [[(question.format(n), n or None) for n in range(200)]]
    assert any("Zanzibar" in str(each) for each in model.requests)
    with acting_as(person):
        assert IndexedText.objects.for_user(person).count() == 206
        assert not Turn.objects.for_user(person).filter(assistant_message__contains="Zanzibar").exists()


def test_first_requests_of_a_named_chat_at_two_processes_at_once_make_one(phone, model):  # noqa: F811
    model.follow(*[Say((HELLO,))] * 24)
    for name in "abc":
        answers = phone.at_once(HI, {"X-Session-Id": name})
        assert [got.status_code for got in answers] == [200] * 8
        assert len({got.headers["X-Recollect-Conversation"] for got in answers}) == 1
    assert phone.shape() == [[("Hi", None)] * 8] * 3


def test_the_same_question_at_two_processes_at_once_makes_siblings(phone, model):  # noqa: F811
    model.follow(Say((HELLO,)), *[Say(("Second.",), seconds_apart=0.1)] * 8)
    phone.say("Hi")
    answers = phone.at_once([*phone.history, {"role": "user", "content": "Cats?"}])
    assert [got.status_code for got in answers] == [200] * 8
    assert phone.shape() == [[("Hi", None), *[("Cats?", 1)] * 8]]


def test_two_chats_that_begin_alike_at_two_processes_at_once_part(phone, model):  # noqa: F811
    model.follow(*[Say((HELLO,))] * 2, *(Say((f"Answer {n}.",)) for n in range(12)))
    phone.at_once(HI, times=1)
    histories = {name: [*HI, {"role": "assistant", "content": HELLO}] for name in ("Cats", "Dogs")}
    for n in range(6):
        for name, history in histories.items():
            phone.history = history
            phone.say(f"{name} {n}?")
    alone, both = sorted(phone.shape(), key=len)
    assert alone == [("Hi", None)]
    words = [None, *(said for said, _ in both)]
    assert {(said, words[parent or 0]) for said, parent in both[1:]} == {
        (f"{name} {n}?", f"{name} {n - 1}?" if n else "Hi") for name in histories for n in range(6)
    }


@pytest.mark.parametrize("earlier", [0, 1])
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_program_with_a_part_of_an_answer_goes_on_at_once_elsewhere(phone, webs, model, how, earlier):  # noqa: F811
    """It has stopped the answer, or the process that wrote it has been killed."""
    count = Say(tuple(f"Word {n}. " for n in range(2_000)), seconds_apart=0.01)
    model.follow(*[Say(("Ready.",))] * (2 + earlier), count, Say(("On.",)))
    for _ in phone.clients:
        phone.post(HI, model="recollect-private")
    for _ in range(earlier):
        phone.say("Begin.")
    asked, got = {"role": "user", "content": "Count."}, ""
    body = {"model": "recollect", "messages": [*phone.history, asked], "stream": True}
    with phone.clients[0].stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                got += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
            if "Word 5." in got:
                break
        if how == "killed":
            webs[0].kill()
    phone.next_client = cycle(phone.clients[1:])
    phone.history += [asked, {"role": "assistant", "content": got}]
    phone.say("Go on.")
    chain = [*["Begin."] * earlier, "Count.", "Go on."]
    assert phone.shape() == [[(words, n or None) for n, words in enumerate(chain)]]


def test_a_retry_at_another_process_makes_no_second_turn(phone, model):  # noqa: F811
    model.follow(*[Say(("Here ", "it ", "is."), seconds_apart=0.3)] * 9)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(phone.post, [{"role": "user", "content": "Anybody?"}])
        wait_until(Turn.objects.exists)
        phone.at_once([{"role": "user", "content": "Anybody?"}], {"X-Stainless-Retry-Count": "1"}, times=2)
        first.result()
    answers = phone.at_once([{"role": "user", "content": "Anybody?"}], {"X-Stainless-Retry-Count": "2"}, times=1)
    assert [got.json()["choices"][0]["message"]["content"] for got in answers] == ["Here it is."] * 2
    assert phone.shape() == [[("Anybody?", None)]]
