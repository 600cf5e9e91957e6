"""`benchmark search`: how long a search takes, ours and the peers', in a database of made-up people.

1. A tenth of the people are loaded and asked; then the others are, and the same people are asked again: a search shall
   cost what its person has, not what everybody has.
2. Every search is asked the same questions, all of them twice, and the second time counts.
   Then the same goes over HTTP, and turns are saved.
3. With `--plots` there are also people with shorter histories, and the figures are drawn.
"""

from argparse import ArgumentParser
from pathlib import Path

from evals.benchmarks.base import Benchmark, Figures
from evals.benchmarks.search.running import run
from evals.options import Number

Cells = list[list[str]]

HEADINGS = ["", "p50 ms", "p95 ms", "asked first", "n", "recall"]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--plots", type=Path, metavar="DIR", help="ask shorter histories too, and draw the figures here"
    )


def table(figures: Figures) -> Cells:
    """A line for each search at full size, then the ratios."""
    rows = [HEADINGS]
    for name, timing in figures["results"].items():
        recall = figures["recall"].get(name)
        shown = "" if recall is None else f"{recall:.3f}"
        times = [f"{timing[one]:.2f}" if one in timing else "" for one in ("p50_ms", "p95_ms", "first_p50_ms")]
        rows.append([name, *times, str(timing["n"]), shown])
    rows += [_line(name, f"missing: {why}") for name, why in (one.split(": ", 1) for one in figures["missing"])]
    rows += [_line("http_rps", f"{figures['http_rps']:,}")]
    rows += [_line(name, value) for name, value in _ratios(figures)]
    rows += [_line("vectors", f"{figures['rows']:,}")]
    return rows


def _ratios(figures: Figures) -> list[tuple[str, str]]:
    """How many times as long a peer takes as the semantic search in turns with it, and a turn's saves as a bare insert;
    what ten times as many rows cost."""
    results = figures["results"]
    saving = f"{results['save_turn']['p50_ms'] / results['bare_insert']['p50_ms']:.2f}"
    beside = [
        (f"{peer} / semantic_db", f"{figures['results'][peer]['p50_ms'] / ours['p50_ms']:.2f}")
        for peer, ours in figures["beside"].items()
    ]
    first, last = figures["scales"][0], figures["scales"][-1]
    grown = [
        (
            f"{name}, {first['rows']:,} to {last['rows']:,} vectors",
            f"{last['results'][name]['p50_ms'] / timing['p50_ms']:.2f}",
        )
        for name, timing in first["results"].items()
        if first is not last
    ]
    return [*beside, ("save_turn / bare_insert", saving), *grown]


def _line(name: str, value: str) -> list[str]:
    return [name, value, "", "", "", ""]


BENCHMARK = Benchmark(
    "search",
    "the time of each search at a given size, beside its peers",
    run,
    {
        "users": Number(50, "how many people"),
        "turns": Number(10_000, "how many turns each"),
        "queries": Number(200, "how many questions at least"),
    },
    add_arguments=add_arguments,
    table=table,
)
