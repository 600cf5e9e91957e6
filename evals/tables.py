"""Figures as a person reads them in a terminal: columns, lines, and whether what must hold does."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass


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


def columns(rows: Sequence[Sequence[str]]) -> str:
    """The first column to the left, the others to the right, each as wide as its widest cell."""
    first, *others = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = []
    for name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, others, strict=True)]
        shown.append("  ".join([name.ljust(first), *padded]))
    return "\n".join(shown)


def lines(rows: Sequence[tuple[str, str]]) -> str:
    """A name and what there is to say of it, one below the other."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)
