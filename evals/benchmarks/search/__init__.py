"""`benchmark search`: how long a search takes, ours and the peers', in a database of made-up people.

1. A tenth of the people are loaded and asked; then the others are, and the same people are asked again: a search shall
   cost what its person has, not what everybody has.
2. Every search is asked the same questions, all of them twice, and the second time counts.
   Then the same goes over HTTP, and turns are saved.
3. With `--plots` there are also people with shorter histories, and the figures are drawn.
"""

from argparse import ArgumentParser
from pathlib import Path

from evals.benchmarks.base import Benchmark
from evals.benchmarks.search.report import table
from evals.benchmarks.search.running import run


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--users", type=int, default=50, metavar="N", help="how many people (default 50)")
    parser.add_argument("--turns", type=int, default=10_000, metavar="M", help="how many turns each (default 10000)")
    parser.add_argument("--queries", type=int, default=200, help="how many questions at least (default 200)")
    parser.add_argument(
        "--plots", type=Path, metavar="DIR", help="ask shorter histories too, and draw the figures here"
    )


BENCHMARK = Benchmark(
    name="search",
    help="the time of each search at a given size, beside its peers",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
