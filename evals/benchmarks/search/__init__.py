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
    parser.add_argument(
        "--datasets",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="also the recall with real vectors: of these",
    )


def table(figures: Figures) -> Cells:
    """A line for each search at full size, then the ratios."""
    rows = [HEADINGS]
    for name, timing in figures["results"].items():
        recall = figures["recall"].get(name)
        shown = "" if recall is None else f"{recall:.3f}"
        times = [f"{timing[one]:.2f}" if one in timing else "" for one in ("p50_ms", "p95_ms", "first_p50_ms")]
        rows.append([name, *times, str(timing["n"]), shown])
    if "real_vectors" in figures["recall"]:
        rows.append(["real_vectors", "", "", "", "", f"{figures['recall']['real_vectors']:.3f}"])
    missing = [(name, f"missing: {why}") for name, why in (one.split(": ", 1) for one in figures["missing"])]
    counts = [("http_rps", f"{figures['http_rps']:,}"), *_ratios(figures), ("vectors", f"{figures['rows']:,}")]
    return rows + [[name, value, "", "", "", ""] for name, value in (*missing, *counts)]


def _ratios(figures: Figures) -> list[tuple[str, str]]:
    """How many times as long a peer takes as the semantic search in turns with it, and a turn's saves as a bare insert;
    what ten times as many rows cost."""
    results, first, last = figures["results"], figures["scales"][0], figures["scales"][-1]

    def times(name: str, one: Figures, other: Figures) -> tuple[str, str]:
        return name, f"{one['p50_ms'] / other['p50_ms']:.2f}"

    beside = [times(f"{peer} / semantic_db", results[peer], ours) for peer, ours in figures["beside"].items()]
    vectors = f"{first['rows']:,} to {last['rows']:,} vectors"
    grown = [
        times(f"{name}, {vectors}", last["results"][name], timing)
        for name, timing in first["results"].items()
        if first is not last
    ]
    return [*beside, times("save_turn / bare_insert", results["save_turn"], results["bare_insert"]), *grown]


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
