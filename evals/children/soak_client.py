"""Many people and visitors who call at once, for `soak`: hand-written HTTP, because the client must cost little.

Reads `{"host", "port", "callers", "calls", "connections", "cancelled", "seed"}`; a caller is `{"token" | "cookie" and
"csrf", "secret", "conversations", "foreign"}`. Writes what became of the calls; every byte of every answer is looked
through for secrets, those of answers that were not read to their end as well.
"""

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from evals.reliability.tally import Tally, foreign_secrets

LONGEST_SECONDS = 60
REPORT_EVERY = 5_000
EXAMPLES = 20
LONGEST_PAUSE_SECONDS = 0.08

QUERIES = (
    "what is the code of the garden shed",
    "locker at the pool",
    "where is the spare key hidden",
    "code",
    "the name that nobody may know",
    "holiday",
)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "soak", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

CallerData = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and the statuses that it may have."""

    kind: str
    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    expected: tuple[int, ...] = (200,)


class Cancelled(Exception):
    """This client left before the answer was complete; `received` is what it had."""

    def __init__(self, received: bytes) -> None:
        self.received = received


def tool(
    name: str, arguments: Callable[[random.Random], dict[str, Any]]
) -> Callable[[CallerData, random.Random], Call]:
    def make(caller: CallerData, dice: random.Random) -> Call:
        return Call(f"rest {name}", "POST", f"/api/v1/tools/{name}/", arguments(dice))

    return make


def mcp(name: str, arguments: Callable[[random.Random], dict[str, Any]]) -> Callable[[CallerData, random.Random], Call]:
    def make(caller: CallerData, dice: random.Random) -> Call:
        return _mcp(f"mcp {name}", "tools/call", {"name": name, "arguments": arguments(dice)})

    return make


def _mcp(kind: str, method: str, params: dict[str, Any]) -> Call:
    headers = {
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": META["io.modelcontextprotocol/protocolVersion"],
        "Mcp-Method": method,
        **({"Mcp-Name": params["name"]} if "name" in params else {}),
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
    return Call(kind, "POST", "/mcp", message, headers)


def _query(dice: random.Random) -> dict[str, Any]:
    return {"query": dice.choice(QUERIES)}


def _hybrid(dice: random.Random) -> dict[str, Any]:
    return {"query": dice.choice(QUERIES), "mode": "hybrid", "limit": 20}


def chat(caller: CallerData, dice: random.Random) -> Call:
    body = {"message": dice.choice(QUERIES), "conversation_id": dice.choice(caller["conversations"])}
    return Call("chat (stream)", "POST", "/api/v1/intake/chat", body)


def reading(kind: str, path: str) -> Callable[[CallerData, random.Random], Call]:
    def make(caller: CallerData, dice: random.Random) -> Call:
        return Call(kind, "GET", path.format(conversation=dice.choice(caller["conversations"])))

    return make


def foreign(caller: CallerData, dice: random.Random) -> Call:
    """Somebody else's, by its true address."""
    return Call("rest of somebody else", "GET", dice.choice(caller["foreign"]), expected=(404,))


def foreign_page(caller: CallerData, dice: random.Random) -> Call:
    return Call("page of somebody else", "GET", dice.choice(caller["foreign"]), expected=(404,))


def note(caller: CallerData, dice: random.Random) -> Call:
    content = f"One more thing about the locker: {caller['secret']}"
    return Call("rest save_memory", "POST", "/api/v1/tools/save_memory/", {"content": content})


def log(caller: CallerData, dice: random.Random) -> Call:
    day = f"2026-0{dice.randint(1, 9)}-{dice.randint(10, 28)}"
    text = f"Looked after the garden shed, {caller['secret']}"
    return Call("rest append_daily_log", "POST", "/api/v1/tools/append_daily_log/", {"text": text, "date": day})


# By weight, in thousandths.
OF_PEOPLE: list[tuple[int, Callable[[CallerData, random.Random], Call]]] = [
    (140, tool("search_chat_history", _query)),
    (140, tool("search_chat_history", _hybrid)),
    (110, tool("search_history", _query)),
    (110, tool("search_memory", _query)),
    (90, mcp("search_chat_history", _hybrid)),
    (50, mcp("search_memory", _query)),
    (40, lambda *_: _mcp("mcp tools/list", "tools/list", {})),
    (40, mcp("list_recent_conversations", lambda _: {})),
    (70, reading("rest conversations", "/api/v1/conversations/")),
    (60, reading("rest conversation", "/api/v1/conversations/{conversation}/")),
    (40, reading("rest records", "/api/v1/memory/records/")),
    (20, reading("rest MEMORY.md", "/api/v1/memory/documents/memory/")),
    (15, note),
    (5, log),
    (40, foreign),
    (30, chat),
]
OF_VISITORS: list[tuple[int, Callable[[CallerData, random.Random], Call]]] = [
    (60, reading("page home", "/")),
    (60, reading("page conversation", "/c/{conversation}/")),
    (40, foreign_page),
    (20, chat),
]


class Connection:
    """One kept connection, on which whoever calls next calls; left now and then in the middle of an answer."""

    def __init__(self, given: dict[str, Any], dice: random.Random, tally: Tally) -> None:
        self._given, self._dice, self._tally = given, dice, tally
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def call(self) -> None:
        caller = self._dice.choice(self._given["callers"])
        menu = OF_PEOPLE if "token" in caller else OF_VISITORS
        (make,) = self._dice.choices([each for _, each in menu], [weight for weight, _ in menu])
        call = make(caller, self._dice)
        self._tally.calls[call.kind] += 1
        is_cancelled = self._dice.random() < self._given["cancelled"]
        began = time.perf_counter()
        try:
            status, answer = await asyncio.wait_for(self._exchange(caller, call, is_cancelled), LONGEST_SECONDS)
        except Cancelled as left:
            self._tally.cancelled += 1
            self._look_through(caller, call, left.received)
            await self.close()
            return
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
            self._unexpected(f"{call.kind}: {type(error).__name__}")
            await self.close()
            return
        self._tally.milliseconds.setdefault(call.kind, []).append(1000 * (time.perf_counter() - began))
        self._tally.statuses[f"{status}"] += 1
        self._look_through(caller, call, answer)
        if status not in call.expected:
            self._unexpected(f"{call.kind}: status {status} {answer[:200].decode(errors='replace')}")
        elif call.kind.startswith("chat") and b"event: done" not in answer:
            self._unexpected(f"{call.kind}: {answer[-200:].decode(errors='replace')}")
        elif call.kind.startswith("mcp") and b'"isError":true' in answer.replace(b" ", b""):
            self._unexpected(f"{call.kind}: {answer[:300].decode(errors='replace')}")

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
        self._reader = self._writer = None

    async def _exchange(self, caller: CallerData, call: Call, is_cancelled: bool) -> tuple[int, bytes]:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._given["host"], self._given["port"])
        assert self._reader is not None  # noqa: S101
        self._writer.write(_request(caller, call))
        await self._writer.drain()
        if is_cancelled:
            # Before anything came, somewhere in the middle, or just before the end.
            raise Cancelled(await _what_comes(self._reader, self._dice.uniform(0, LONGEST_PAUSE_SECONDS)))
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        return status, head + await _body(self._reader, head.lower())

    def _look_through(self, caller: CallerData, call: Call, answer: bytes) -> None:
        self._tally.own_secrets += caller["secret"].encode() in answer
        for secret in foreign_secrets(answer, own=caller["secret"]):
            self._tally.leaks.append(f"{call.kind}: {secret}")

    def _unexpected(self, what: str) -> None:
        self._tally.unexpected.append(what)


def _request(caller: CallerData, call: Call) -> bytes:
    body = b"" if call.body is None else json.dumps(call.body).encode()
    headers = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **call.headers,
    }
    if "token" in caller:
        headers["Authorization"] = f"{'Bearer' if call.path == '/mcp' else 'Token'} {caller['token']}"
    else:
        headers |= {"Cookie": caller["cookie"], "X-CSRFToken": caller["csrf"]}
    lines = [f"{call.method} {call.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if match := re.search(rb"content-length: (\d+)", head):
        return await reader.readexactly(int(match[1]))
    if b"transfer-encoding: chunked" not in head:
        return b""
    pieces = []
    while size := int(await reader.readuntil(b"\r\n"), 16):
        pieces.append((await reader.readexactly(size + 2))[:-2])
    await reader.readexactly(2)
    return b"".join(pieces)


async def _what_comes(reader: asyncio.StreamReader, seconds: float) -> bytes:
    received = b""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while piece := await reader.read(65_536):
                received += piece
    return received


async def _soak(given: dict[str, Any]) -> Tally:
    tally = Tally()
    remaining = iter(range(given["calls"]))

    async def one(number: int) -> None:
        connection = Connection(given, random.Random(f"{given['seed']}-{number}"), tally)  # noqa: S311
        for done in remaining:
            await connection.call()
            if done and done % REPORT_EVERY == 0:
                print(f"{done:,} of {given['calls']:,} calls.", file=sys.stderr)  # noqa: T201
        await connection.close()

    async with asyncio.TaskGroup() as group:
        for number in range(given["connections"]):
            group.create_task(one(number))
    return tally


def run(**given: Any) -> dict[str, Any]:
    """Runs in a process of its own."""
    return asyncio.run(_soak(given)).as_data()
