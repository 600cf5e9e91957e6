"""`benchmark tools`: what a call of a tool costs beyond the search beneath it, over REST and over MCP.

1. One person's history is loaded into a scratch database.
2. A fresh process calls the search itself, and puts the same questions to a real web process, over REST and over MCP in
   both revisions, each by one connection that it keeps. It embeds the queries by the model that the web process has.
3. Question by question the four ways take turns, each time in another order: what else the machine does meanwhile
   troubles all alike, and none finds what another has warmed up.
"""

import random
import time
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from agent_tools.authentication import create_token
from agent_tools.registry import as_data
from agent_tools.tools.chat_history import SearchChatHistoryInput
from agent_tools.tools.chat_history import run as run_tool
from core.isolation.acting import acting_as
from evals.benchmarks.base import Benchmark, Figures
from evals.benchmarks.search.asking import LIMIT, AskedQuestions, ask, figures
from evals.benchmarks.search.histories import made_pool
from evals.benchmarks.search.meaning import synthetic_meaning
from evals.client import MCP_PATH, MCP_REVISION, Client, mcp_request
from evals.datasets.loading import Report
from evals.options import Number
from evals.processes import Environment, call, environment, hardly_limited, logging_in, own_broker, web
from evals.scratch import scratch_database
from intake.models import User
from memory.backends.embedders import get_embedder
from memory.search import SearchMode

BASE = "search"
MODES = (SearchMode.SEMANTIC.value, SearchMode.HYBRID.value)
TOOL = "search_chat_history"
SEED = 1

Arguments = dict[str, Any]
CallResults = list[dict[str, Any]]
Way = Callable[[Arguments], CallResults]
HEADINGS = ["", "p50 ms", "p95 ms", "n", "more, p50 ms", "more, p95 ms"]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help=f"how it is searched (default {MODES[0]})")


def run(options: dict[str, Any], report: Report) -> Figures:
    with scratch_database() as database, own_broker() as broker:
        given = environment(database=database, broker=broker) | hardly_limited()
        with synthetic_meaning():
            with made_pool(options["turns"], given=given, report=report) as pool:
                users = pool.load([options["turns"]])
            (asked,) = ask(users, count=options["queries"])
        return {"turns": options["turns"], "mode": options["mode"], "results": _measure(asked, options, given, report)}


def _measure(asked: AskedQuestions, options: dict[str, Any], given: Environment, report: Report) -> Figures:
    secret = create_token(user=asked.user, name="benchmark").secret
    with web(given) as (address, _):
        report(f"Asking {len(asked.questions)} questions, each of them every way.")
        milliseconds = call(
            ask_every_way,
            logging_in(given, "DATABASE_URL"),
            address=address,
            token=secret,
            user_id=asked.user.pk,
            warm_up=[question.text for question in asked.warm_up],
            questions=[question.text for question in asked.questions],
            arguments={"limit": LIMIT, "mode": options["mode"]},
        )
    timings = {way: figures(each) for way, each in milliseconds.items()}
    base = timings[BASE]
    return {
        way: {
            **timing,
            "more_p50_ms": round(timing["p50_ms"] - base["p50_ms"], 3),
            "more_p95_ms": round(timing["p95_ms"] - base["p95_ms"], 3),
        }
        for way, timing in timings.items()
    }


def ask_every_way(
    *, address: str, token: str, user_id: int, warm_up: list[str], questions: list[str], arguments: Arguments
) -> Figures:
    """Runs in a process of its own: the milliseconds of the questions by the way in which they were asked.

    `search` is what the tool runs, in this process, as the person and with the query embedded here.
    """
    # Or the first search would, for so long that the server may have hung up on the other ways.
    get_embedder().warm_up()
    ways = _ways(address, {"Authorization": f"Bearer {token}"}, user_id)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    # The call after a search that this process runs itself meets a web process that has been idle for longest:
    # in a fixed order one and the same would.
    orders = random.Random(SEED)  # noqa: S311 - no secret
    for number, query in enumerate(warm_up + questions):
        found = []
        for name in orders.sample(list(ways), k=len(ways)):
            begun = time.perf_counter()
            found.append(ways[name]({"query": query, **arguments}))
            taken[name].append(1000 * (time.perf_counter() - begun))
        if not found[0] or any(one != found[0] for one in found):
            raise SystemExit(f"The ways of asking question {number} found nothing, or not the same.")
    return {name: each[len(warm_up) :] for name, each in taken.items()}


def _ways(address: str, person: dict[str, str], user_id: int) -> dict[str, Way]:
    return {
        "search": _search(user_id),
        "rest": _over_rest(Client(address, person)),
        "mcp": _over_mcp(Client(address, person), MCP_REVISION),
        "mcp_2025": _over_mcp(Client(address, person), "2025-11-25"),
    }


def _search(user_id: int) -> Way:
    user = User.objects.get(pk=user_id)

    def search(arguments: Arguments) -> CallResults:
        with acting_as(user):
            found = run_tool(SearchChatHistoryInput(**arguments), user)
        results: CallResults = as_data(found)["results"]
        return results

    return search


def _over_rest(client: Client) -> Way:
    return lambda arguments: _asked(client, f"/api/v1/tools/{TOOL}/", arguments, {})["results"]


def _over_mcp(client: Client, revision: str) -> Way:
    def call_tool(arguments: Arguments) -> CallResults:
        message, headers = mcp_request("tools/call", revision, name=TOOL, arguments=arguments)
        results: CallResults = _asked(client, MCP_PATH, message, headers)["result"]["structuredContent"]["results"]
        return results

    return call_tool


def _asked(client: Client, path: str, body: Any, headers: dict[str, str]) -> Any:
    answer = client.ask("POST", path, body, headers)
    if not answer.is_ok:
        raise SystemExit(f"{path} was answered {answer}")
    return answer.data


def table(shown: Figures) -> list[list[str]]:
    """A line for each way, the search beneath them first."""
    rows = [HEADINGS]
    for way, timing in shown["results"].items():
        more = [f"{timing[name]:+.2f}" if way != BASE else "" for name in ("more_p50_ms", "more_p95_ms")]
        rows.append([way, f"{timing['p50_ms']:.2f}", f"{timing['p95_ms']:.2f}", str(timing["n"]), *more])
    return rows


BENCHMARK = Benchmark(
    "tools",
    "what a call costs beyond the search beneath it, over REST and MCP",
    run,
    {
        "turns": Number(3_000, "how many turns there are"),
        "queries": Number(300, "how many questions each way"),
    },
    add_arguments=add_arguments,
    table=table,
)
