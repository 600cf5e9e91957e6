"""What a benchmark is to the command that runs it."""

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Report = Callable[[str], None]
Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`run(options, report)` gives figures by the names that the JSON file has; `report` takes lines on progress."""

    name: str
    help: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[dict[str, Any], Report], Figures]


def percentiles(milliseconds: Sequence[float], name: str) -> Figures:
    """`{name}_p50_ms` and `{name}_p95_ms`."""
    p50, p95 = np.percentile(milliseconds, [50, 95])
    return {f"{name}_p50_ms": round(float(p50), 2), f"{name}_p95_ms": round(float(p95), 2)}
