"""The chat when it is hard: readers who stop reading or vanish, what is deleted meanwhile."""

import asyncio
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from chat.answers import hub, writer
from chat.tests.test_chat_stream import the_turn
from core.errors import AuthenticationRequired
from core.isolation.acting import Caller, acting_as
from intake.chats import services
from intake.models import Turn
from intake.tests.factories import a_person
from testing.fixtures import Client
from testing.model_server import Say
from testing.serving import wait_until

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

CHAT = "/api/v1/intake/chat"


class Reader:
    """Asks over a line of its own, and then reads only when it is told to."""

    def __init__(self, client: Client, message: str) -> None:
        address = urlsplit(str(client.base_url))
        body = f'{{"message": "{message}"}}'
        token = client._csrf()["X-CSRFToken"]
        cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
        lines = [
            f"POST {CHAT} HTTP/1.1",
            f"Host: {address.netloc}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            f"Cookie: {cookies}",
            f"X-CSRFToken: {token}",
        ]
        self.line = socket.socket()
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.line.connect((address.hostname, address.port))
        self.line.sendall(("\r\n".join([*lines, "", ""]) + body).encode())

    def read_until(self, word: bytes) -> None:
        self.line.settimeout(10)
        heard = b""
        while word not in heard:
            heard += (piece := self.line.recv(4096))
            assert piece, heard

    def reset(self) -> None:
        """Break the line off without a farewell, as a phone does that loses its network."""
        self.line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.line.close()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_whoever_vanishes_ends_nothing(visitor, language_model, how):
    words = tuple(f"word{n} " for n in range(40))
    model = language_model(Say(words, seconds_apart=0.05))
    reader = Reader(visitor, "Talk")
    reader.read_until(b"word5")
    reader.line.close() if how == "close" else reader.reset()
    wait_until(lambda: the_turn().status == "complete")
    assert the_turn().assistant_message == "".join(words)
    assert model.closed_at is None


@pytest.mark.parametrize("count", [30, pytest.param(200, marks=pytest.mark.extended)])
async def test_readers_who_stopped_reading_hold_up_neither_their_answers_nor_anybody_else(
    person, language_model, count
):
    """Each has taken two events and takes no more."""
    language_model(*[Say(("word ",) * 200) for _ in range(count)], Say(("Prompt.",)))
    caller = Caller(user_id=person.pk)
    stalled = []
    for _ in range(count):
        stalled.append(await begun(caller))
        assert (await anext(stalled[-1])).startswith(b"event: turn")
        assert (await anext(stalled[-1])).startswith(b"event: delta")
    started = time.monotonic()
    events = [event async for event in await begun(caller)]
    assert events[-1].startswith(b"event: done")
    assert time.monotonic() - started < 5
    await sync_to_async(wait_until)(lambda: acting_as(caller)(statuses)() == {"complete": count + 1}, 30)
    # All that they have missed comes in one piece.
    assert [event.partition(b"\n")[0] async for event in stalled[0]] == [b"event: delta", b"event: done"]
    await asyncio.gather(*(stream.aclose() for stream in stalled))


async def test_an_answer_without_end_is_ended(person, language_model, monkeypatch):
    monkeypatch.setattr(writer, "LONGEST_ANSWER", 1000)
    model = language_model(Say(("word ",) * 100_000))
    caller = Caller(user_id=person.pk)
    events = [event async for event in await begun(caller)]
    assert b"too_large" in events[-1]
    await sync_to_async(wait_until)(lambda: model.closed_at)
    (turn,) = await sync_to_async(acting_as(caller)(lambda: list(Turn.objects.all())))()
    assert (turn.status, len(turn.assistant_message)) == ("interrupted", 1005)


def statuses() -> Counter[str]:
    return Counter(Turn.objects.values_list("status", flat=True))


async def begun(caller: Caller) -> AsyncIterator[bytes]:
    turn = await sync_to_async(acting_as(caller)(services.create_turn))(
        services.TurnRequest(message="Talk"), caller=caller, now=timezone.now()
    )
    hub.start_answer(writer.AnswerWriter(turn, caller))
    return hub.follow_answer(turn=turn, caller=caller)


def test_a_conversation_deleted_while_it_is_answered_stays_deleted(person, log_in, language_model):
    language_model(Say(tuple(f"word{n} " for n in range(60)), seconds_apart=0.05))
    client, other = log_in(person), log_in(person)
    with client.stream("POST", CHAT, json={"message": "Talk"}, headers=client._csrf()) as response:
        for line in response.iter_lines():
            if "word3 " in line:
                key = the_turn().conversation_id
                other.delete(f"/api/v1/conversations/{key}/", headers=other._csrf())
        assert line is not None
    assert not Turn.objects.exists()


def test_a_caller_who_is_gone_cannot_begin_a_turn():
    alice = a_person()
    caller = Caller(user_id=alice.pk)
    alice.delete()
    with acting_as(caller), pytest.raises(AuthenticationRequired):
        services.create_turn(services.TurnRequest(message="Hello"), caller=caller, now=timezone.now())
