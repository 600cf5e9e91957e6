"""The chat when it is hard: many writers, readers who stop reading or vanish, a server that is killed."""

import asyncio
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from urllib.parse import urlsplit

import httpx2
import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from intake import chat, services
from intake.errors import AuthenticationRequired
from intake.models import Turn
from intake.models.conversations import Caller
from intake.testing.fixtures import Client
from intake.testing.model_server import Say, ScriptedModel
from intake.testing.serving import serving
from intake.tests.factories import a_person
from intake.tests.test_chat_stream import the_turn, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

CHAT = "/api/v1/intake/chat"
# Far more than a line's buffers hold, so that a reader who stops reading stops the server's writing.
LONG = "word " * 2_000


def test_fifty_messages_at_once_to_one_conversation_are_numbered_without_a_gap(person, log_in, language_model):
    language_model(*[Say((f"Answer {number}.",)) for number in range(51)])
    client = log_in(person)
    key = client.events("First")[0].data["conversationId"]
    csrf = client._csrf()

    def write(number: int) -> list[int]:
        body = {"message": f"Message {number}", "conversation_id": key}
        with httpx2.Client(base_url=client.base_url, cookies=client.cookies, timeout=60) as own:
            answer = own.post(CHAT, json=body, headers=csrf)
        assert "event: done" in answer.text
        return [int(found) for found in re.findall(r'"turnNumber":(\d+)', answer.text)]

    with ThreadPoolExecutor(50) as pool:
        told = list(pool.map(write, range(50)))
    assert sorted(first for first, _ in told) == list(range(2, 52))
    assert all(first == last for first, last in told)
    assert sorted(Turn.objects.values_list("turn_number", flat=True)) == list(range(1, 52))
    assert set(Turn.objects.values_list("status", flat=True)) == {"complete"}


class Reader:
    """Asks over a line of its own, and then reads only when it is told to."""

    def __init__(self, client: Client, message: str) -> None:
        address = urlsplit(str(client.base_url))
        body = f'{{"message": "{message}"}}'
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        lines = [
            f"POST {CHAT} HTTP/1.1",
            f"Host: {address.netloc}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"Cookie: {cookies}",
            f"X-CSRFToken: {client._csrf()['X-CSRFToken']}",
        ]
        self.line = socket.socket()
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.line.connect((address.hostname, address.port))
        self.line.sendall(("\r\n".join([*lines, "", ""]) + body).encode())

    def read_until(self, word: bytes) -> None:
        self.line.settimeout(10)
        heard = b""
        while word not in heard:
            heard += self.line.recv(4096)

    def reset(self) -> None:
        """Break the line off without a farewell, as a phone does that loses its network."""
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.line.close()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_whoever_vanishes_leaves_what_was_written_and_the_model_is_let_go_within_a_second(visitor, language_model, how):
    model = language_model(Say(tuple(f"word{n} " for n in range(400)), seconds_apart=0.05))
    reader = Reader(visitor, "Talk")
    reader.read_until(b"word5")
    left_at = time.monotonic()
    reader.line.close() if how == "close" else reader.reset()
    assert wait_until(lambda: model.closed_at) - left_at < 1
    wait_until(lambda: the_turn().status == "interrupted")
    assert the_turn().assistant_message.startswith("word0 word1 word2 word3 word4 word5")


def stalled_readers(client: Client, language_model, count: int) -> list[Reader]:
    """So many who ask for a long answer and read nothing of it; returns once none of the answers grows any more."""
    language_model(*[Say((LONG,) * 2_000) for _ in range(count)])
    return [Reader(client, "Talk for ever") for _ in range(count)]


@pytest.mark.parametrize("count", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_readers_who_stopped_reading_cost_no_growing_memory_and_slow_nobody(person, log_in, language_model, count):
    client = log_in(person)
    readers = stalled_readers(client, language_model, count)
    wait_until(lambda: Turn.objects.filter(status="streaming").count() == count, seconds=60)
    wait_until(lambda: not is_growing(), seconds=90)
    written = sum(len(text) for text in Turn.objects.values_list("assistant_message", flat=True))
    assert written < count * (chat.QUEUE_LENGTH + 400) * len(LONG)
    started = time.monotonic()
    assert client.get("/conversations/").status_code == 200
    assert time.monotonic() - started < 2
    for reader in readers:
        reader.line.close()
    wait_until(lambda: not Turn.objects.filter(status="streaming").exists(), seconds=60)
    assert set(Turn.objects.values_list("status", flat=True)) == {"interrupted"}


def is_growing() -> bool:
    before = lengths()
    time.sleep(2 * chat.SAVE_EVERY_SECONDS + 0.5)
    return lengths() != before


def lengths() -> list[int]:
    return [len(text) for text in Turn.objects.order_by("pk").values_list("assistant_message", flat=True)]


async def test_between_the_model_and_the_reader_there_is_room_for_a_few_events_only():
    """By the queue itself: whoever fills it waits."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue(chat.QUEUE_LENGTH)
    for _ in range(chat.QUEUE_LENGTH):
        queue.put_nowait(b"event")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(queue.put(b"one too many"), 0.05)


@pytest.fixture
def killable_server(free_port):
    """A server in a process of its own, on the test's database."""
    environment = {
        **os.environ,
        "IGNORE_ENV_FILES": "1",
        "DJANGO_SETTINGS_MODULE": "config.settings.test",
        "DATABASE_URL": database_url(),
    }
    started = []

    def start(model_url: str) -> tuple[subprocess.Popen, str]:
        command = [sys.executable, "-m", "uvicorn", "config.asgi:application", "--port", str(free_port)]
        process = subprocess.Popen(
            command,
            env=environment | {"LLM_MODEL": "scripted", "LLM_BASE_URL": model_url},
            cwd=settings.BASE_DIR,
            stderr=subprocess.DEVNULL,
        )
        started.append(process)
        address = f"http://127.0.0.1:{free_port}"
        wait_until(lambda: is_up(address), seconds=60)
        return process, address

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def is_up(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/healthz", timeout=2).status_code == 200
    except httpx2.HTTPError:
        return False


def database_url() -> str:
    """The test's own database instead of the one that the environment names."""
    url = os.environ["DATABASE_URL"]
    parts = urlsplit(url)
    return parts._replace(path="/" + connection.settings_dict["NAME"]).geturl()


def test_a_server_that_is_killed_loses_no_more_than_a_second_of_the_answer(killable_server):
    model = ScriptedModel(Say(tuple(f"word{n} " for n in range(400)), seconds_apart=0.05))
    with serving(model.application) as model_address:
        process, address = killable_server(model_address + "/v1")
        a_person("alice@example.com")
        written: list[tuple[float, str]] = []
        with Client(base_url=address, follow_redirects=True, timeout=20) as client:
            client.submit("/login/", username="alice@example.com", password="password")
            with (
                client.stream("POST", CHAT, json={"message": "Talk"}, headers=client._csrf()) as response,
                pytest.raises(httpx2.HTTPError),
            ):
                for line in response.iter_lines():
                    if found := re.search(r"word\d+", line):
                        written.append((time.monotonic(), found[0]))
                    if len(written) == 60 and process.poll() is None:
                        process.send_signal(signal.SIGKILL)
        killed_at = written[59][0]
    # What had been shown more than a second (and the time a save takes) before the kill is there.
    safe = [word for at, word in written[:60] if at < killed_at - chat.SAVE_EVERY_SECONDS - 0.5]
    kept = the_turn().assistant_message.split()
    assert the_turn().status == "streaming"
    assert len(safe) >= 10
    assert kept[: len(safe)] == safe
    services.close_abandoned_turns(now=timezone.now() + timedelta(hours=1), idle=timedelta(minutes=2))
    assert (the_turn().status, the_turn().assistant_message.split()) == ("interrupted", kept)


def test_a_conversation_deleted_while_it_is_answered_stays_deleted(person, log_in, language_model):
    language_model(Say(tuple(f"word{n} " for n in range(60)), seconds_apart=0.05))
    client, other = log_in(person), log_in(person)
    with client.stream("POST", CHAT, json={"message": "Talk"}, headers=client._csrf()) as response:
        for line in response.iter_lines():
            if "word3" in line:
                key = the_turn().conversation_id
                other.delete(f"/api/v1/conversations/{key}/", headers=other._csrf())
        assert line is not None
    assert not Turn.objects.exists()


def test_a_caller_who_is_gone_cannot_begin_a_turn():
    alice = a_person()
    caller = Caller(user_id=alice.pk)
    alice.delete()
    with pytest.raises(AuthenticationRequired):
        services.begin_turn(caller=caller, message="Hello", conversation_id=None, now=timezone.now())
