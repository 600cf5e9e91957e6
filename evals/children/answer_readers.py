"""The readers of `benchmark answers`, in a process of their own: they ask, read along, leave and come back.

Reads `{address, pid, tokens, answers, readers, words, pause, spread}` and writes what they heard, and how much memory
the web process `pid` had before and at most.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import psutil

TIMEOUT_SECONDS = 300
MEMORY_EVERY_SECONDS = 0.25
# Of those who read along, so many leave once and come back.
LEAVING_SHARE = 1 / 3
MOST_TRIES = 5
WARM_UP = 10


@dataclass
class Heard:
    first_event_ms: list[float] = field(default_factory=list)
    first_word_ms: list[float] = field(default_factory=list)
    joined_ms: list[float] = field(default_factory=list)
    wrong: int = 0
    at_once: int = 0
    rest_bytes: int = 0
    peak_bytes: int = 0


class Readers:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._address = urlsplit(plan["address"])
        self._turns: list[asyncio.Future[int]] = [asyncio.get_running_loop().create_future() for _ in plan["tokens"]]
        self._open = 0
        self.heard = Heard()

    async def run(self) -> None:
        process = psutil.Process(self._plan["pid"])
        for _ in range(WARM_UP):
            [event async for event in self._events(0, "POST", "/api/v1/intake/chat", '{"message": "Warm up"}')]
        self.heard.rest_bytes = process.memory_info().rss
        watch = asyncio.create_task(self._watch(process))
        answers, readers = self._plan["answers"], self._plan["readers"]
        chance = random.Random(1)  # noqa: S311
        asking = [self._ask(number, self._plan["spread"] * number / answers) for number in range(answers)]
        whole = self._plan["spread"] + self._plan["words"] * self._plan["pause"] / 2
        joining = [self._join(number % answers, chance.uniform(1, whole)) for number in range(readers - answers)]
        await asyncio.gather(*asking, *joining)
        watch.cancel()

    async def _watch(self, process: psutil.Process) -> None:
        while True:
            self.heard.peak_bytes = max(self.heard.peak_bytes, process.memory_info().rss)
            self.heard.at_once = max(self.heard.at_once, self._open)
            await asyncio.sleep(MEMORY_EVERY_SECONDS)

    async def _ask(self, number: int, after: float) -> None:
        await asyncio.sleep(after)
        began, text, is_first = time.perf_counter(), "", True
        body = json.dumps({"message": f"Number {number}"})
        async for name, data, _ in self._events(number, "POST", "/api/v1/intake/chat", body):
            if name == "turn":
                self.heard.first_event_ms.append(_since(began))
                self._turns[number].set_result(data["turnId"])
                self._open += 1
            elif name == "delta":
                if is_first:
                    self.heard.first_word_ms.append(_since(began))
                    is_first = False
                text += data["text"]
        self._open -= 1
        self._check(number, text)

    async def _join(self, number: int, after: float) -> None:
        await asyncio.sleep(after)
        turn_id = await self._turns[number]
        leaves = random.random() < LEAVING_SHARE  # noqa: S311
        text, last, began = "", None, time.perf_counter()
        is_first = True
        for _ in range(MOST_TRIES):
            headers: dict[str, str] = {"Last-Event-ID": last} if last else {}
            path = f"/api/v1/intake/turns/{turn_id}/events"
            async for name, data, id_ in self._events(number, "GET", path, headers=headers):
                if is_first:
                    self.heard.joined_ms.append(_since(began))
                    is_first = False
                text = "" if name == "turn" else text + data.get("text", "")
                last = id_ or last
                if name == "done":
                    self._check(number, text)
                    return
                if leaves and name == "delta":
                    leaves = False
                    break
        self.heard.wrong += 1

    def _check(self, number: int, text: str) -> None:
        self.heard.wrong += text != "".join(f"{number}.{word} " for word in range(self._plan["words"]))

    async def _events(
        self, number: int, method: str, path: str, body: str = "", headers: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[str, dict[str, Any], str | None]]:
        assert self._address.hostname  # noqa: S101
        reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        given = {
            "Host": self._address.netloc,
            "Authorization": f"Bearer {self._plan['tokens'][number]}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items()), "", body]
        writer.write("\r\n".join(lines).encode())
        name, id_ = "", None
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                async for raw in reader:
                    key, _, value = raw.decode().rstrip("\r\n").partition(": ")
                    if key == "event":
                        name, id_ = value, None
                    elif key == "id":
                        id_ = value
                    elif key == "data":
                        yield name, json.loads(value), id_
                        if name in ("done", "error"):
                            return
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


def _since(began: float) -> float:
    return 1000 * (time.perf_counter() - began)


async def main() -> None:
    readers = Readers(json.load(sys.stdin))
    await readers.run()
    json.dump(vars(readers.heard), sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
