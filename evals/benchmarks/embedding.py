"""`benchmark embedding`: what embedding one query costs the person who waits for it, the model being loaded."""

import time
from argparse import ArgumentParser
from typing import Any

from evals import synthetic
from evals.benchmarks.base import Benchmark, Figures, percentiles
from evals.datasets.loading import Report
from memory.embedders import get_embedder

WARM_UP = 20


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, default=300, help="how many queries of about 12 tokens (default 300)")


def run(options: dict[str, Any], report: Report) -> Figures:
    embedder = get_embedder()
    for query in synthetic.queries(WARM_UP, seed=1):
        embedder.embed_query(query)
    report(f"Embedding {options['samples']} queries one by one.")
    return percentiles([_milliseconds(query) for query in synthetic.queries(options["samples"])], "query")


def _milliseconds(query: str) -> float:
    begun = time.perf_counter()
    get_embedder().embed_query(query)
    return 1000 * (time.perf_counter() - begun)


BENCHMARK = Benchmark(name="embedding", help="the time to embed one query", add_arguments=add_arguments, run=run)
