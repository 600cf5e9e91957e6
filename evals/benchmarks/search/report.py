"""The figures as a person reads them: each search's times, and what they come to beside the peers'."""

from evals.benchmarks.base import Figures

Cells = list[list[str]]

HEADINGS = ["", "p50 ms", "p95 ms", "asked first", "n", "recall"]


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
