"""Somebody who asks the same questions every way, for `benchmark tools`: by the search itself, over REST, over MCP.

Reads `{"host", "port", "token", "user_id", "warm_up", "questions", "arguments"}`, writes the milliseconds of the
questions by way: `search` is what the tool runs, in this process, as the person and with the query embedded here.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import django

django.setup()

from agent_tools.registry import as_data  # noqa: E402
from agent_tools.tools.chat_history import SearchChatHistoryInput, run  # noqa: E402
from core.isolation.acting import acting_as  # noqa: E402
from evals.children.kept_line import KeptLine  # noqa: E402
from intake.models import User  # noqa: E402
from memory.embedders import get_embedder  # noqa: E402

TOOL = "search_chat_history"
REST = f"/api/v1/tools/{TOOL}/"
MCP = "/mcp"
SEED = 1
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

Arguments = dict[str, Any]
CallResults = list[dict[str, Any]]
Way = Callable[[Arguments], CallResults]


def main() -> None:
    given = json.load(sys.stdin)
    # Or the first search would, for so long that the server may have hung up on the other ways.
    get_embedder().warm_up()
    ways = _ways(given)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    # The call after a search that this process runs itself meets a web process that has been idle for longest:
    # in a fixed order one and the same would.
    orders = random.Random(SEED)  # noqa: S311 - no secret
    for number, query in enumerate(given["warm_up"] + given["questions"]):
        arguments = {"query": query, **given["arguments"]}
        found = []
        for name in orders.sample(list(ways), k=len(ways)):
            begun = time.perf_counter()
            found.append(ways[name](arguments))
            taken[name].append(1000 * (time.perf_counter() - begun))
        if not found[0] or any(one != found[0] for one in found):
            raise SystemExit(f"The ways of asking question {number} found nothing, or not the same.")
    json.dump({name: each[len(given["warm_up"]) :] for name, each in taken.items()}, sys.stdout)


def _ways(given: dict[str, Any]) -> dict[str, Way]:
    return {
        "search": _search(given["user_id"]),
        "rest": _over_rest(given),
        "mcp": _over_mcp(given, {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": TOOL}),
        "mcp_2025": _over_mcp(given, {"MCP-Protocol-Version": "2025-11-25"}),
    }


def _search(user_id: int) -> Way:
    user = User.objects.get(pk=user_id)

    def search(arguments: Arguments) -> CallResults:
        with acting_as(user):
            found = run(SearchChatHistoryInput(**arguments), user)
        results: CallResults = as_data(found)["results"]
        return results

    return search


def _over_rest(given: dict[str, Any]) -> Way:
    ask = _asking(given, REST, {})
    return lambda arguments: ask(arguments)["results"]


def _over_mcp(given: dict[str, Any], headers: dict[str, str]) -> Way:
    ask = _asking(given, MCP, {"Accept": "application/json, text/event-stream", **headers})
    meta = {"_meta": META} if "Mcp-Method" in headers else {}

    def call(arguments: Arguments) -> CallResults:
        params = {"name": TOOL, "arguments": arguments, **meta}
        answer = ask({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        results: CallResults = answer["result"]["structuredContent"]["results"]
        return results

    return call


def _asking(given: dict[str, Any], path: str, extra: dict[str, str]) -> Callable[[Any], Any]:
    """One connection, which is kept."""
    line = KeptLine(given["host"], given["port"])
    headers = {"Authorization": f"Bearer {given['token']}", **extra}

    def ask(body: Any) -> Any:
        status, answer = line.post(path, body, headers)
        if status != HTTPStatus.OK:
            raise SystemExit(f"{path} answered {status}.")
        return answer

    return ask


if __name__ == "__main__":
    main()
