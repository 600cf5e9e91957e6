"""The readers of `benchmark answers`, in a process of their own: they ask, read along, leave and come back.

Reads `{addresses, pids, tokens, answers, readers, words, pause, spread}` and writes what they heard, and how much
memory the web processes `pids` had before and at most.

Each reader ends in one of four ways: with the whole answer, refused (by a status, or by silence), with an answer that
the server itself says has failed or was cut short, or with anything else: an answer that lost words or has others'.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any
from urllib.parse import SplitResult, urlsplit

import psutil

TIMEOUT_SECONDS = 300
MEMORY_EVERY_SECONDS = 0.25
# Of those who read along, so many leave once and come back.
LEAVING_SHARE = 1 / 3
MOST_TRIES = 5
WARM_UP = 10
ENDINGS = ("done", "error")


@dataclass
class Heard:
    first_event_ms: list[float] = field(default_factory=list)
    first_word_ms: list[float] = field(default_factory=list)
    joined_ms: list[float] = field(default_factory=list)
    whole: int = 0
    refused: int = 0
    failed: int = 0
    wrong: int = 0
    at_once: int = 0
    rest_bytes: int = 0
    peak_bytes: int = 0


class Refused(Exception):
    """The server answered with another status than 200, or not to the end."""


class Readers:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        # In turns, as a balancer would have it.
        self._addresses = cycle(urlsplit(address) for address in plan["addresses"])
        # None for a question that was refused.
        self._turns: list[asyncio.Future[int | None]] = [
            asyncio.get_running_loop().create_future() for _ in plan["tokens"]
        ]
        self._open = 0
        self.heard = Heard()

    async def run(self) -> None:
        processes = [psutil.Process(pid) for pid in self._plan["pids"]]
        for _ in range(WARM_UP * len(processes)):
            [event async for event in self._events(0, "POST", "/api/v1/intake/chat", '{"message": "Warm up"}')]
        self.heard.rest_bytes = _resident(processes)
        watch = asyncio.create_task(self._watch(processes))
        answers, readers = self._plan["answers"], self._plan["readers"]
        chance = random.Random(1)  # noqa: S311
        asking = [self._ask(number, self._plan["spread"] * number / answers) for number in range(answers)]
        whole = self._plan["spread"] + self._plan["words"] * self._plan["pause"] / 2
        joining = [self._join(number % answers, chance.uniform(1, whole)) for number in range(readers - answers)]
        await asyncio.gather(*asking, *joining)
        watch.cancel()

    async def _watch(self, processes: list[psutil.Process]) -> None:
        while True:
            self.heard.peak_bytes = max(self.heard.peak_bytes, _resident(processes))
            self.heard.at_once = max(self.heard.at_once, self._open)
            await asyncio.sleep(MEMORY_EVERY_SECONDS)

    async def _ask(self, number: int, after: float) -> None:
        await asyncio.sleep(after)
        turn, began, text = self._turns[number], time.perf_counter(), ""
        body = json.dumps({"message": f"Number {number}"})
        try:
            async for name, data, _ in self._events(number, "POST", "/api/v1/intake/chat", body):
                if name == "turn":
                    self.heard.first_event_ms.append(_since(began))
                    turn.set_result(data["turnId"])
                    self._open += 1
                elif name == "delta":
                    if not text:
                        self.heard.first_word_ms.append(_since(began))
                    text += data["text"]
                elif name in ENDINGS:
                    self._judge(number, text, name, data)
        except Refused:
            self.heard.refused += 1
        if turn.done():
            self._open -= 1
        else:
            turn.set_result(None)

    async def _join(self, number: int, after: float) -> None:
        await asyncio.sleep(after)
        turn_id = await self._turns[number]
        leaves = random.random() < LEAVING_SHARE  # noqa: S311
        text, last, began, is_first = "", None, time.perf_counter(), True
        for _ in range(MOST_TRIES if turn_id is not None else 0):
            headers: dict[str, str] = {"Last-Event-ID": last} if last else {}
            path = f"/api/v1/intake/turns/{turn_id}/events"
            with suppress(Refused):
                async for name, data, id_ in self._events(number, "GET", path, headers=headers):
                    if is_first:
                        self.heard.joined_ms.append(_since(began))
                        is_first = False
                    text = "" if name == "turn" else text + data.get("text", "")
                    last = id_ or last
                    if name in ENDINGS:
                        self._judge(number, text, name, data)
                        return
                    if leaves and name == "delta":
                        leaves = False
                        break
        self.heard.refused += 1

    def _judge(self, number: int, text: str, name: str, data: dict[str, Any]) -> None:
        whole = "".join(f"{number}.{word} " for word in range(self._plan["words"]))
        is_cut_short = name == "error" or data.get("status") == "interrupted"
        if is_cut_short and whole.startswith(text):
            self.heard.failed += 1
        elif text == whole:
            self.heard.whole += 1
        else:
            self.heard.wrong += 1

    async def _events(
        self, number: int, method: str, path: str, body: str = "", headers: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[str, dict[str, Any], str | None]]:
        """Raises `Refused`."""
        address, name, id_ = next(self._addresses), "", None
        given = {
            "Host": address.netloc,
            "Authorization": f"Bearer {self._plan['tokens'][number]}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", body]
        async with _connected(address) as (reader, writer):
            writer.write("\r\n".join(head).encode())
            if (await reader.readline()).split(b" ")[1:2] != [b"200"]:
                raise Refused
            async for raw in reader:
                key, _, value = raw.decode().rstrip("\r\n").partition(": ")
                if key == "event":
                    name, id_ = value, None
                elif key == "id":
                    id_ = value
                elif key == "data":
                    yield name, json.loads(value), id_
                    if name in ENDINGS:
                        return
        raise Refused


@asynccontextmanager
async def _connected(address: SplitResult) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A line to the server; raises `Refused` where it breaks, or for a server that takes too long."""
    writer = None
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            yield reader, writer
    except (TimeoutError, OSError) as error:
        raise Refused from error
    finally:
        if writer is not None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def _since(began: float) -> float:
    return 1000 * (time.perf_counter() - began)


def _resident(processes: list[psutil.Process]) -> int:
    return sum(process.memory_info().rss for process in processes)


def run(**plan: Any) -> dict[str, Any]:
    """Runs in a process of its own."""
    return vars(asyncio.run(_read(plan)))


async def _read(plan: dict[str, Any]) -> Heard:
    readers = Readers(plan)
    await readers.run()
    return readers.heard
