"""`benchmark memory`: how much a worker holds after its work, and a web process after a search, in MB."""

import json
import urllib.request
from argparse import ArgumentParser
from typing import Any

from django.apps import apps

from evals.benchmarks.base import Benchmark, Figures
from evals.benchmarks.indexing import save_turns, work_off
from evals.datasets.loading import Report
from evals.processes import environment, memory_megabytes, own_broker, web, worker
from evals.scratch import scratch_database
from intake.models import User


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=200, help="how many the worker has worked off (default 200)")


def run(options: dict[str, Any], report: Report) -> Figures:
    with scratch_database() as database, own_broker() as broker:
        given = environment(database=database, broker=broker)
        with worker(given) as process:
            save_turns(options["turns"], seed=0)
            work_off(given)
            worker_mb = memory_megabytes(process)
        report("The worker is measured; now the web process.")
        with web(given) as (address, process):
            _search(address)
            web_mb = memory_megabytes(process)
    return {**_named("worker", worker_mb), **_named("web", web_mb)}


def _named(name: str, megabytes: tuple[float, float]) -> Figures:
    return {f"{name}_rss_mb": megabytes[0], f"{name}_pss_mb": megabytes[1]}


def _search(address: str) -> None:
    """As an agent does, with a token, over everything that one person said."""
    searcher = User.objects.earliest("pk")
    _, token = apps.get_model("agent_tools.AccessToken").objects.issue(user=searcher)
    request = urllib.request.Request(  # noqa: S310
        f"{address}/api/v1/tools/search_chat_history/",
        data=json.dumps({"query": "What did I say about the garden?"}).encode(),
        headers={"Authorization": f"Token {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
        if not json.load(response)["results"]:
            raise RuntimeError("The search found nothing, so what it holds says nothing.")


BENCHMARK = Benchmark(
    name="memory",
    help="resident memory of a worker and a web process at work",
    add_arguments=add_arguments,
    run=run,
)
