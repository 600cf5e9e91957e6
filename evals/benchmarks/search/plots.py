"""Draws the figures: times against the length of a person's history, and against everybody's rows."""

from pathlib import Path
from typing import Any

from django.core.management import CommandError

from evals.benchmarks.base import Figures
from evals.benchmarks.search.peers import INSTALL

BY_HISTORY = "search-by-history.png"
BY_ROWS = "search-by-rows.png"
LABELS = {
    "semantic_db": "semantic",
    "hybrid_db": "hybrid",
    "hybrid_reranked_db": "hybrid, reranked",
    "search_history_db": "search_history",
    "numpy": "numpy, in memory",
    "sqlite_vec_spec": "sqlite-vec, as specified",
    "sqlite_vec_partition": "sqlite-vec, partitioned",
    "lancedb": "LanceDB",
    "lancedb_bitmap": "LanceDB, bitmap index",
}


def check() -> None:
    """Raises `CommandError` where nothing can be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise CommandError(f"--plots needs matplotlib: {INSTALL}") from error


def draw(figures: Figures, folder: Path) -> None:
    """Two PNGs in `folder`, which exists."""
    _by_history(figures, folder / BY_HISTORY)
    _by_rows(figures, folder / BY_ROWS)


def _by_history(figures: Figures, path: Path) -> None:
    picture, axes = _axes("turns of the person")
    for name, label in LABELS.items():
        sizes = [one for one in figures["sizes"] if name in one["results"]]
        if not sizes:
            continue
        turns = [one["turns"] for one in sizes]
        p50, p95 = ([one["results"][name][key] for one in sizes] for key in ("p50_ms", "p95_ms"))
        (line,) = axes.plot(turns, p50, marker="o", label=label, linewidth=2 if name.endswith("_db") else 1)
        axes.fill_between(turns, p50, p95, alpha=0.12, color=line.get_color(), linewidth=0)
    axes.set_title(f"One search, p50 to p95, among {figures['rows']:,} vectors of everybody")
    _save(picture, axes, path)


def _by_rows(figures: Figures, path: Path) -> None:
    picture, axes = _axes("vectors of everybody")
    for name in figures["scales"][0]["results"]:
        rows = [one["rows"] for one in figures["scales"]]
        p50 = [one["results"][name]["p50_ms"] for one in figures["scales"]]
        axes.plot(rows, p50, marker="o", linewidth=2, label=LABELS.get(name, name))
    axes.set_title(f"One search, p50, by the same people with {figures['turns_per_user']:,} turns each")
    _save(picture, axes, path)


def _axes(label: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    picture = Figure(figsize=(9.6, 4.8), layout="constrained")
    axes = picture.subplots()
    axes.set(xscale="log", yscale="log", xlabel=label, ylabel="milliseconds")
    axes.grid(visible=True, which="both", alpha=0.25)
    return picture, axes


def _save(picture: Any, axes: Any, path: Path) -> None:
    # Beside the lines, which go everywhere.
    picture.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    picture.savefig(path, dpi=130)
