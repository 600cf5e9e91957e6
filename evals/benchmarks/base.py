"""The interface between a benchmark and the command that runs it."""

from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evals.datasets.loading import Report
from evals.metrics import p50_and_p95
from evals.options import Number

Figures = dict[str, Any]
TableRows = Sequence[Sequence[str]]


def one_a_line(figures: Figures) -> TableRows:
    """Figures that are numbers, each with its name."""
    return [[name, f"{value:,}"] for name, value in figures.items()]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`run(options, report)` gives figures by the names that the JSON file has; `report` takes lines on progress.

    `numbers` are its options, and `add_arguments` adds those that are no numbers. `table` shows the figures to a
    person, and `words` are lines below it.
    """

    name: str
    help: str
    run: Callable[[dict[str, Any], Report], Figures]
    numbers: Mapping[str, Number] = field(default_factory=dict)
    add_arguments: Callable[[ArgumentParser], object] = lambda parser: None
    table: Callable[[Figures], TableRows] = one_a_line
    words: Callable[[Figures], Sequence[str]] = lambda figures: ()


def percentiles(milliseconds: Sequence[float], name: str) -> dict[str, float]:
    """`{name}_p50_ms` and `{name}_p95_ms`."""
    p50, p95 = p50_and_p95(milliseconds, digits=2)
    return {f"{name}_p50_ms": p50, f"{name}_p95_ms": p95}
