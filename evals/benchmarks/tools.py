"""`benchmark tools`: what a call of a tool costs beyond the search beneath it, over REST and over MCP.

1. One person's history is loaded into a scratch database.
2. A fresh process calls the search itself, and puts the same questions to a real web process, over REST and over MCP in
   both revisions, each by one connection that it keeps. It embeds the queries by the model that the web process has.
3. Question by question the four ways take turns, each time in another order: what else the machine does meanwhile
   troubles all alike, and none finds what another has warmed up.
"""

from argparse import ArgumentParser
from typing import Any
from urllib.parse import urlsplit

from django.core.management import CommandError
from django.utils import timezone

from agent_tools.tokens import create_token
from evals.benchmarks.base import Benchmark, Figures
from evals.benchmarks.search.asking import AskedQuestions, ask, figures
from evals.benchmarks.search.loading import load, made_pool
from evals.benchmarks.search.meaning import synthetic_meaning
from evals.benchmarks.search.ours import LIMIT
from evals.benchmarks.search.over_http import hardly_limited
from evals.datasets.loading import Report
from evals.processes import Environment, environment, logging_in, own_broker, run_module, web
from evals.scratch import scratch_database
from memory.search import SearchMode

BASE = "search"
MODES = (SearchMode.SEMANTIC.value, SearchMode.HYBRID.value)
HEADINGS = ["", "p50 ms", "p95 ms", "n", "more, p50 ms", "more, p95 ms"]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=3_000, metavar="M", help="how many turns there are (default 3000)")
    parser.add_argument("--queries", type=int, default=300, help="how many questions each way (default 300)")
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help=f"how it is searched (default {MODES[0]})")


def run(options: dict[str, Any], report: Report) -> Figures:
    for name in ("turns", "queries"):
        if options[name] < 1:
            raise CommandError(f"--{name} must be at least 1.")
    with scratch_database() as database, own_broker() as broker:
        given = environment(database=database, broker=broker) | hardly_limited()
        with synthetic_meaning():
            now = timezone.now()
            with made_pool(options["turns"], now=now, report=report) as pool:
                users = load(pool, [options["turns"]], given=given, now=now, report=report)
            (asked,) = ask(users, count=options["queries"])
        return {"turns": options["turns"], "mode": options["mode"], "results": _measure(asked, options, given, report)}


def _measure(asked: AskedQuestions, options: dict[str, Any], given: Environment, report: Report) -> Figures:
    secret = create_token(user=asked.user, name="benchmark").secret
    with web(given) as (address, _):
        report(f"Asking {len(asked.questions)} questions, each of them every way.")
        place = urlsplit(address)
        order = {
            "host": place.hostname,
            "port": place.port,
            "token": secret,
            "user_id": asked.user.pk,
            "warm_up": [question.text for question in asked.warm_up],
            "questions": [question.text for question in asked.questions],
            "arguments": {"limit": LIMIT, "mode": options["mode"]},
        }
        milliseconds = run_module("evals.children.tool_caller", logging_in(given, "DATABASE_URL"), data=order)
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


def table(shown: Figures) -> list[list[str]]:
    """A line for each way, the search beneath them first."""
    rows = [HEADINGS]
    for way, timing in shown["results"].items():
        more = [f"{timing[name]:+.2f}" if way != BASE else "" for name in ("more_p50_ms", "more_p95_ms")]
        rows.append([way, f"{timing['p50_ms']:.2f}", f"{timing['p95_ms']:.2f}", str(timing["n"]), *more])
    return rows


BENCHMARK = Benchmark(
    name="tools",
    help="what a call costs beyond the search beneath it, over REST and MCP",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
