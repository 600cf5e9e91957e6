"""The benchmarks behind the figures in the documentation: one module each, and a command that runs them by name."""

from evals.benchmarks import (
    answers,
    backup,
    capacity,
    importing,
    indexing,
    overload,
    pages,
    saving,
    search,
    tools,
)
from evals.benchmarks.base import Benchmark

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        search.BENCHMARK,
        tools.BENCHMARK,
        saving.BENCHMARK,
        indexing.INDEXING,
        indexing.EMBEDDING,
        indexing.MEMORY,
        capacity.BENCHMARK,
        answers.BENCHMARK,
        overload.BENCHMARK,
        pages.BENCHMARK,
        importing.BENCHMARK,
        backup.BENCHMARK,
    )
}
