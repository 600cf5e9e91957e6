"""The calls of `soak`, made by many people and visitors at once, and the words that one caller alone may be shown.

Every byte of every answer is looked through for others' secrets, also of those that were not read to their end.
"""

import random
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from evals.client import MCP_PATH, Client, HttpAnswer, mcp_request
from evals.reliability.product import CHAT

REPORT_EVERY = 5_000
LONGEST_PAUSE_SECONDS = 0.08
QUERIES = (
    "what is the code of the garden shed",
    "locker at the pool",
    "where is the spare key hidden",
    "code",
    "the name that nobody may know",
    "holiday",
)
# A shape that nothing else has; one that was cut off at the end of an excerpt is recognised by its beginning.
_SECRET = re.compile(rb"hush[0-9a-f]{2,16}")

SoakCaller = dict[str, Any]
"""`kind` (`person` or `visitor`), `headers`, `secret`, `conversations`, and `foreign`: paths of what others own."""


def new_secret() -> str:
    """A word that one caller alone may ever be shown."""
    return f"hush{secrets.token_hex(8)}"


def foreign_secrets(answer: bytes, *, own: str) -> list[str]:
    """Those in `answer` that are not `own`, nor the beginning of it."""
    return [secret for found in _SECRET.findall(answer) if not own.startswith(secret := found.decode())]


@dataclass
class Tally:
    """The results of some calls. `milliseconds` are by the kind of call."""

    calls: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    cancelled: int = 0
    own_secrets: int = 0
    leaks: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    milliseconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, other: dict[str, Any]) -> None:
        """Another one as JSON has it."""
        self.calls.update(other["calls"])
        self.statuses.update(other["statuses"])
        self.cancelled += other["cancelled"]
        self.own_secrets += other["own_secrets"]
        self.leaks += other["leaks"]
        self.unexpected += other["unexpected"]
        for kind, milliseconds in other["milliseconds"].items():
            self.milliseconds.setdefault(kind, []).extend(milliseconds)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, and the status that it must have."""

    kind: str
    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    expected: int = 200


MakeCall = Callable[[SoakCaller, random.Random], Call]
MakeArguments = Callable[[SoakCaller, random.Random], dict[str, Any]]


def _rest(name: str, arguments: MakeArguments) -> MakeCall:
    return lambda caller, dice: Call(f"rest {name}", "POST", f"/api/v1/tools/{name}/", arguments(caller, dice))


def _mcp(name: str, arguments: MakeArguments) -> MakeCall:
    def make(caller: SoakCaller, dice: random.Random) -> Call:
        message, headers = mcp_request("tools/call", name=name, arguments=arguments(caller, dice))
        return Call(f"mcp {name}", "POST", MCP_PATH, message, headers)

    return make


def _list_tools(caller: SoakCaller, dice: random.Random) -> Call:
    message, headers = mcp_request("tools/list")
    return Call("mcp tools/list", "POST", MCP_PATH, message, headers)


def _reading(kind: str, path: str) -> MakeCall:
    return lambda caller, dice: Call(kind, "GET", path.format(conversation=dice.choice(caller["conversations"])))


def _foreign(kind: str) -> MakeCall:
    """Somebody else's, by its true address."""
    return lambda caller, dice: Call(kind, "GET", dice.choice(caller["foreign"]), expected=404)


def _chat(caller: SoakCaller, dice: random.Random) -> Call:
    body = {"message": dice.choice(QUERIES), "conversation_id": dice.choice(caller["conversations"])}
    return Call("chat (stream)", "POST", CHAT, body)


def _query(caller: SoakCaller, dice: random.Random) -> dict[str, Any]:
    return {"query": dice.choice(QUERIES)}


def _hybrid(caller: SoakCaller, dice: random.Random) -> dict[str, Any]:
    return {"query": dice.choice(QUERIES), "mode": "hybrid", "limit": 20}


def _note(caller: SoakCaller, dice: random.Random) -> dict[str, Any]:
    return {"content": f"One more thing about the locker: {caller['secret']}"}


def _log(caller: SoakCaller, dice: random.Random) -> dict[str, Any]:
    day = f"2026-0{dice.randint(1, 9)}-{dice.randint(10, 28)}"
    return {"text": f"Looked after the garden shed, {caller['secret']}", "date": day}


# By weight, in thousandths.
CALLS: dict[str, list[tuple[int, MakeCall]]] = {
    "person": [
        (140, _rest("search_chat_history", _query)),
        (140, _rest("search_chat_history", _hybrid)),
        (110, _rest("search_history", _query)),
        (110, _rest("search_memory", _query)),
        (90, _mcp("search_chat_history", _hybrid)),
        (50, _mcp("search_memory", _query)),
        (40, _list_tools),
        (40, _mcp("list_recent_conversations", lambda *_: {})),
        (70, _reading("rest conversations", "/api/v1/conversations/")),
        (60, _reading("rest conversation", "/api/v1/conversations/{conversation}/")),
        (40, _reading("rest records", "/api/v1/memory/records/")),
        (20, _reading("rest MEMORY.md", "/api/v1/memory/documents/memory/")),
        (15, _rest("save_memory", _note)),
        (5, _rest("append_daily_log", _log)),
        (40, _foreign("rest of somebody else")),
        (30, _chat),
    ],
    "visitor": [
        (60, _reading("page home", "/")),
        (60, _reading("page conversation", "/c/{conversation}/")),
        (40, _foreign("page of somebody else")),
        (20, _chat),
    ],
}


def call_at_random(
    *, address: str, callers: list[SoakCaller], calls: int, connections: int, cancelled: float, seed: str
) -> list[dict[str, Any]]:
    """Runs in a process of its own: so many calls over so many connections, and a tally of each connection.

    `cancelled` is the share of calls whose client leaves before the answer is complete.
    """
    remaining = iter(range(calls))

    def call_on_one(number: int) -> dict[str, Any]:
        dice = random.Random(f"{seed}-{number}")  # noqa: S311
        with Client(address) as client:
            connection = Connection(client, callers, cancelled, dice)
            for done in remaining:
                connection.call()
                if done and done % REPORT_EVERY == 0:
                    print(f"{done:,} of {calls:,} calls.", file=sys.stderr)  # noqa: T201
        return vars(connection.tally)

    with ThreadPoolExecutor(max_workers=connections) as pool:
        return list(pool.map(call_on_one, range(connections)))


class Connection:
    """One kept connection, which any caller may use next; left now and then in the middle of an answer."""

    def __init__(self, client: Client, callers: list[SoakCaller], cancelled: float, dice: random.Random) -> None:
        self._client, self._callers, self._cancelled, self._dice = client, callers, cancelled, dice
        self.tally = Tally()

    def call(self) -> None:
        caller = self._dice.choice(self._callers)
        menu = CALLS[caller["kind"]]
        (make,) = self._dice.choices([each for _, each in menu], [weight for weight, _ in menu])
        call = make(caller, self._dice)
        request = call.method, call.path, call.body, {**caller["headers"], **call.headers}
        self.tally.calls[call.kind] += 1
        try:
            if self._dice.random() < self._cancelled:
                # Before anything came, somewhere in the middle, or just before the end.
                seconds = self._dice.uniform(0, LONGEST_PAUSE_SECONDS)
                self._look_through(caller, call, self._client.ask_and_leave(*request, seconds=seconds))
                self.tally.cancelled += 1
                return
            began = time.perf_counter()
            answer = self._client.ask(*request)
        except OSError as error:
            self.tally.unexpected.append(f"{call.kind}: {type(error).__name__}")
            return
        self.tally.milliseconds.setdefault(call.kind, []).append(1000 * (time.perf_counter() - began))
        self.tally.statuses[str(answer.status)] += 1
        self._look_through(caller, call, answer.everything)
        self.tally.unexpected += [f"{call.kind}: {wrong}" for wrong in _wrong_with(call, answer)]

    def _look_through(self, caller: SoakCaller, call: Call, answer: bytes) -> None:
        self.tally.own_secrets += caller["secret"].encode() in answer
        self.tally.leaks += [f"{call.kind}: {secret}" for secret in foreign_secrets(answer, own=caller["secret"])]


def _wrong_with(call: Call, answer: HttpAnswer) -> Iterator[str]:
    """Another status than expected, a stream without its end, a tool that failed over MCP."""
    if answer.status != call.expected:
        yield f"status {answer}"
    elif call.path == CHAT and b"event: done" not in answer.body:
        yield answer.body[-200:].decode(errors="replace")
    elif call.path == MCP_PATH and b'"isError":true' in answer.body.replace(b" ", b""):
        yield str(answer)
