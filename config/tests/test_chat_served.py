"""The chat under stress, served by the web process as `make up` starts it, with a language model of its own."""

import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from copy import copy
from datetime import timedelta
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest
from django.apps import apps
from django.conf import settings as project
from django.db import connection
from django.db.models.functions import Length

from intake.models import Conversation, Turn
from intake.tests.factories import a_person
from memory.models import IndexedText
from memory.tasks import close_abandoned_turns
from testing.examiner import as_a_worker
from testing.model_server import Say, ScriptedModel
from testing.serving import serving
from testing.sse_client import read_events

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

CHAT = "/api/v1/intake/chat"
START_SECONDS = 120
PATIENCE = 30
WRITERS = 50
# What one of many requests may take while others do not read, beside what it takes while there are none.
NOT_SLOWED = 3.0
# What the process may grow in bytes: what Python sets aside meanwhile, up to 50 MB when twenty threads begin at once;
# and for each answer its log, of a quarter of a million characters, and what the system buffers of it on the way to a
# reader who reads nothing.
STEADY = 75_000_000
MOST_KEPT_OF_AN_ANSWER = 3_000_000


def wait_until(condition, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not (result := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
    return result


class Web:
    """The web process; `kill` gives it no time to say farewell."""

    def __init__(self, environment, log):
        self.environment, self.log = environment, log
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        command = [sys.executable, "-m", "config.serving", "127.0.0.1", str(self.port), "up"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=project.BASE_DIR, env=self.environment, stdout=log, stderr=subprocess.STDOUT
            )
        wait_until(self.is_ready, START_SECONDS)

    def is_ready(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx2.get(f"{self.address}/healthz").status_code == 200
        except httpx2.TransportError:
            return False

    def end(self, by=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(by)
            self.process.wait(PATIENCE)

    def kill(self):
        self.end(signal.SIGKILL)

    @property
    def memory(self):
        return psutil.Process(self.process.pid).memory_info().rss


@pytest.fixture(scope="module")
def served(django_db_setup, tmp_path_factory):
    """The process and the model that it asks."""
    folder = tmp_path_factory.mktemp("served")
    # The names alone: an embedded server's address goes on after them.
    path = f"/{connection.settings_dict['NAME']}"
    urls = {name: urlsplit(os.environ[name])._replace(path=path) for name in ("DATABASE_URL", "DATABASE_OWNER_URL")}
    model = ScriptedModel()
    with serving(model.application) as address:
        environment = {
            **os.environ,
            **{name: url.geturl() for name, url in urls.items()},
            "DJANGO_SETTINGS_MODULE": "config.settings.local",
            "SECRET_KEY": project.SECRET_KEY,
            "RECOLLECT_VAR": str(folder),
            "MODEL_CACHE_DIR": str(project.MODEL_CACHE_DIR),
            "EMBEDDING_LANGUAGES": "english",
            "RERANK_SECONDS": "0",
            "LOG_LEVEL": "WARNING",
            "LLM_MODEL": "scripted",
            # A title is one more request, which no script expects.
            "CHAT_TITLES": "false",
            "LLM_BASE_URL": f"{address}/v1",
            "RATE_LIMITS": "0",
        }
        web = Web(environment, folder / "web.log")
        try:
            web.start()
            yield web, model
        finally:
            web.end()


@pytest.fixture
def web(served):
    web, _ = served
    if web.process.poll() is not None:
        web.start()
    return web


@pytest.fixture
def another_web(web):
    """A second process on the same database and the same Redis."""
    another = Web(web.environment, web.log)
    try:
        another.start()
        yield another
    finally:
        another.end()


@pytest.fixture
def model(served):
    return served[1]


class Speaker:
    """A person with a token, over HTTP."""

    def __init__(self, web, name):
        self.user = a_person(f"{name}@example.com")
        _, self.token = apps.get_model("agent_tools.AccessToken").objects.issue(user=self.user)
        self.headers = {"Authorization": f"Token {self.token}"}
        self.web = web

    def client(self):
        return httpx2.Client(base_url=self.web.address, headers=self.headers, timeout=PATIENCE)

    def say(self, message, conversation=None):
        """The events of the whole answer."""
        body = {"message": message, **({"conversation_id": conversation} if conversation else {})}
        with self.client() as client, client.stream("POST", CHAT, json=body) as response:
            assert response.status_code == 200, response.read()
            return list(read_events(response.iter_lines()))

    def at(self, web):
        """The same person at another process."""
        there = copy(self)
        there.web = web
        return there

    def follow(self, turn_id, after=None, until=None):
        """The events of an answer, to its end or as far as a word."""
        headers, heard = ({"Last-Event-ID": after} if after else {}), []
        path = f"/api/v1/intake/turns/{turn_id}/events"
        with self.client() as client, client.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200, response.read()
            for event in read_events(response.iter_lines()):
                heard.append(event)
                if until and until in str(event.data):
                    break
        return heard

    def stop(self, turn_id):
        with self.client() as client:
            return client.post(f"/api/v1/intake/turns/{turn_id}/stop").json()["status"]

    def ask(self, message):
        """A line of one's own, of which no more is read than one says."""
        body = json.dumps({"message": message})
        lines = [
            f"POST {CHAT} HTTP/1.1",
            f"Host: 127.0.0.1:{self.web.port}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"Authorization: Token {self.token}",
        ]
        line = socket.socket()
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.settimeout(PATIENCE)
        line.connect(("127.0.0.1", self.web.port))
        line.sendall(("\r\n".join([*lines, "", ""]) + body).encode())
        return line


def text_of(events):
    return "".join(event.data["text"] for event in events if event.name == "delta")


def read_until(line, word):
    heard = b""
    while word not in heard:
        heard += (piece := line.recv(4096))
        assert piece, heard
    return heard


@contextmanager
def leaving(line, how):
    """Ends with the line closed, or broken off without a farewell, as a phone does that loses its network."""
    yield
    if how == "reset":
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def words(count, seconds_apart):
    return Say(tuple(f"word{number:04} " for number in range(count)), seconds_apart)


def test_fifty_who_write_into_one_conversation_at_once_are_all_kept_without_a_gap(web, model):
    alice = Speaker(web, "alice")
    model.follow(*[Say(("Noted.",)) for _ in range(WRITERS + 1)])
    conversation = alice.say("Begin")[0].data["conversationId"]
    with ThreadPoolExecutor(WRITERS) as writers:
        answers = list(writers.map(lambda number: alice.say(f"Message {number}", conversation), range(WRITERS)))
    assert [events[-1].name for events in answers] == ["done"] * WRITERS
    numbers = {f"Message {number}": events[-1].data["turnNumber"] for number, events in enumerate(answers)}
    assert sorted(numbers.values()) == list(range(2, WRITERS + 2))
    turns = Turn.objects.filter(conversation=conversation).exclude(turn_number=1)
    assert {turn.user_message: turn.turn_number for turn in turns} == numbers
    assert {(turn.status, turn.assistant_message) for turn in turns} == {("complete", "Noted.")}
    assert Conversation.objects.get().turn_count == WRITERS + 1


@pytest.mark.parametrize("moment", ["in the middle", "before the first word"])
@pytest.mark.parametrize("how", ["closed", "reset"])
def test_a_reader_who_leaves_ends_nothing_and_may_come_back(web, model, how, moment):
    model.follow(words(30, 0.03))
    alice = Speaker(web, "alice")
    line = alice.ask("Talk")
    read_until(line, b"word0005" if moment == "in the middle" else b"event: turn")
    with leaving(line, how):
        turn = Turn.objects.get()
    events = alice.follow(turn.pk)
    assert (events[-1].name, text_of(events)) == ("done", "".join(words(30, 0).pieces))
    turn.refresh_from_db()
    assert (turn.status, turn.assistant_message) == ("complete", text_of(events))
    assert model.closed_at is None


def test_another_web_process_follows_and_stops_an_answer(web, model, another_web):
    # For longer than the other process may take to load what its first reader needs.
    model.follow(words(3_000, 0.2))
    alice = Speaker(web, "alice")
    there = alice.at(another_web)
    with closing(alice.ask("Talk")) as line:
        read_until(line, b"word0005")
        turn_id = Turn.objects.get().pk
        heard = there.follow(turn_id, until="word0020")
        part = alice.follow(turn_id, after=heard[-1].id, until="word0030")
        # A reader that returns to the first process gets `turn`, then the answer from its start.
        whole = "".join(words(3_000, 0).pieces)
        assert whole.startswith(text_of(heard)) and whole.startswith(text_of(part))
        assert len(text_of(part)) > len(text_of(heard))
        asked_at = time.monotonic()
        assert there.stop(turn_id) == "interrupted"
        assert wait_until(lambda: model.closed_at) - asked_at < 1
        assert b"event: done" in read_until(line, b'"status":"interrupted"')
    assert Turn.objects.get().assistant_message.startswith(text_of(heard))


def test_a_server_that_is_stopped_closes_the_models_stream_and_keeps_what_was_written(web, model):
    model.follow(words(400, 0.05))
    with closing(Speaker(web, "alice").ask("Talk")) as line:
        read_until(line, b"word0005")
        asked_at = time.monotonic()
        web.end()
    assert wait_until(lambda: model.closed_at) - asked_at < 4
    turn = Turn.objects.get()
    assert (turn.status, turn.error["detail"]) == ("interrupted", "Interrupted: the server was restarted.")
    assert turn.assistant_message.startswith("word0000 word0001 word0002 word0003 word0004 word0005")


def test_a_server_killed_in_the_middle_of_an_answer_loses_a_second_of_it_at_most(web, model, monkeypatch):
    alice = Speaker(web, "alice")
    model.follow(words(1_000, 0.02))
    # How much of the answer had been read at which moment.
    heard, read = [], b""
    with closing(alice.ask("Tell me about the lighthouse")) as line:
        while not heard or time.monotonic() < heard[0][0] + 2.3:
            read += line.recv(4096)
            if count := read.count(b"word"):
                heard.append((time.monotonic(), count))
        web.kill()
    killed_at = heard[-1][0]
    kept = Turn.objects.get()
    assert kept.status == "streaming"
    a_second_before = max(count for at, count in heard if at <= killed_at - 1)
    assert a_second_before > 10
    assert kept.assistant_message.count("word") >= a_second_before

    web.start()
    monkeypatch.setattr("intake.chats.running.LEASE", timedelta())
    with as_a_worker():
        close_abandoned_turns()
    with alice.client() as client:
        (turn,) = client.get(f"/api/v1/conversations/{kept.conversation_id}/").json()["turns"]
        assert (turn["status"], turn["assistantMessage"]) == ("interrupted", kept.assistant_message)
        found = client.post("/api/v1/tools/search_history/", json={"query": "lighthouse"}).json()["results"]
        assert found[0]["conversationId"] == str(kept.conversation_id)
    assert IndexedText.objects.filter(user=alice.user).exists()


@pytest.mark.parametrize("count", [16])
def test_readers_who_stopped_reading_cost_no_memory_and_slow_nobody(web, model, count):
    """They have begun to read long answers and take no more of them; the answers are written to their ends."""
    alice, bob = Speaker(web, "alice"), Speaker(web, "bob")
    took(web, model, bob, times=2)
    before = took(web, model, bob)
    memory = [web.memory]
    # One word for each piece, since what is kept of them is also indexed.
    model.follow(*[Say(("x" * 8_000 + " ",) * 30)] * count)
    with ExitStack() as lines, ThreadPoolExecutor(20) as readers:
        stalled = [
            lines.enter_context(closing(line)) for line in readers.map(lambda _: alice.ask("Talk"), range(count))
        ]
        list(readers.map(lambda line: read_until(line, b"event: delta"), stalled))
        wait_until(lambda: statuses(alice) == {"complete": count}, START_SECONDS)
        assert written(alice) == count * 30 * 8_001
        during = took(web, model, bob, each=lambda: memory.append(web.memory))
        assert max(memory) - memory[0] < STEADY + count * MOST_KEPT_OF_AN_ANSWER
        assert statistics.median(during) < NOT_SLOWED * statistics.median(before)
    assert set(statuses(bob)) == {"complete"}


def took(web, model, speaker, *, times=10, each=lambda: None):
    """Seconds, for each of so many times, for what a person does: say something, and look something up."""
    model.follow(*[Say(("Noted.",))] * times)
    seconds = []
    with speaker.client() as client:
        for _ in range(times):
            began = time.perf_counter()
            assert speaker.say("Note this")[-1].name == "done"
            assert client.get("/api/v1/conversations/").status_code == 200
            seconds.append(time.perf_counter() - began)
            each()
    return seconds


def written(speaker):
    lengths = Turn.objects.filter(user=speaker.user).values_list(Length("assistant_message"), flat=True)
    return sum(lengths)


def statuses(speaker):
    return Counter(Turn.objects.filter(user=speaker.user).values_list("status", flat=True))
