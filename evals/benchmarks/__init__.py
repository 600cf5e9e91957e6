"""The benchmarks behind the figures in the documentation: one module each, and a command that runs them by name."""

from evals.benchmarks import (
    attachments,
    backup,
    capacity,
    footprint,
    importing,
    indexing,
    overload,
    pages,
    saving,
    search,
)
from evals.benchmarks.base import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        search.BENCHMARK,
        saving.BENCHMARK,
        indexing.INDEXING,
        indexing.EMBEDDING,
        capacity.BENCHMARK,
        footprint.BENCHMARK,
        overload.BENCHMARK,
        pages.BENCHMARK,
        importing.BENCHMARK,
        backup.BENCHMARK,
        attachments.BENCHMARK,
    )
}
