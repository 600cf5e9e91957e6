"""Figures as a person reads them in a terminal: percentages in columns, with how sure they are."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from evals import metrics, retrieval, surfaces
from evals.retrieval import Answered
from evals.surfaces import AskedOf

HEADINGS = {
    **{f"recall@{k}": f"R@{k}" for k in metrics.RECALL_AT},
    **{f"all@{k}": f"all@{k}" for k in metrics.ALL_AT},
    "mrr": "MRR",
    f"ndcg@{metrics.NDCG_AT}": f"nDCG@{metrics.NDCG_AT}",
}
WITH_INTERVALS = ("overall", "headline")


def retrieval_table(name: str, answered: list[Answered]) -> str:
    """Percent, per group of queries; under the two totals, the range they would keep to with other people."""
    rows = [[name, "n", *(HEADINGS[name] for name in metrics.NAMES)]]
    for group, members in retrieval.groups(answered).items():
        if not members:
            continue
        means = retrieval.mean(members)
        rows.append([group, str(len(members)), *(f"{100 * means[name]:.1f}" for name in metrics.NAMES)])
        if group in WITH_INTERVALS:
            spans = retrieval.intervals(members)
            rows.append(["  95 % interval", "", *(_percent(*spans[name]) for name in metrics.NAMES)])
    return columns(rows)


def surface_table(name: str, answered: Sequence[AskedOf]) -> str:
    """Percent, per category, and below them what is asked of some categories alone."""
    data = surfaces.as_data(answered)
    rows = [[name, "n", *(HEADINGS[fact] for fact in surfaces.FACTS)]]
    for category, means in {**data["categories"], "overall": data["overall"]}.items():
        rows.append([category, str(means["n"]), *(f"{100 * means[fact]:.1f}" for fact in surfaces.FACTS)])
    more = [(fact.replace("_", " "), f"{100 * value:.1f}") for fact, value in data.items() if isinstance(value, float)]
    return f"{columns(rows)}\n{lines(more)}"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right, each as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def lines(rows: Sequence[tuple[str, str]]) -> str:
    """A name and what there is to say of it, one below the other."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(row, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])


def _percent(low: float, high: float) -> str:
    return f"{100 * low:.0f}-{100 * high:.0f}"


@dataclass(frozen=True, slots=True)
class Check:
    """A figure of a run, with what it must be and whether it is; without `must` it is shown and not judged."""

    name: str
    value: str
    holds: bool = True
    must: str = ""

    @property
    def row(self) -> tuple[str, str]:
        verdict = f"  {'pass' if self.holds else 'FAIL'} ({self.must})" if self.must else ""
        return self.name, f"{self.value}{verdict}"

    @property
    def violation(self) -> str:
        return f"{self.name}: {self.value}, must be {self.must}."


def some(found: Iterable[str], *, most: int = 5) -> str:
    """How many there are, and what, the commonest first."""
    counts = Counter(found)
    kinds = [what if count == 1 else f"{count:,} x {what}" for what, count in counts.most_common(most)]
    return f"{counts.total():,} ({', '.join(kinds)})" if kinds else "0"


def none_of(name: str, found: Collection[str]) -> Check:
    """A check that there are none."""
    return Check(name, some(found), not found, "none")
