"""The named suites: each fills an empty database, and its verdicts decide a command's exit status."""

from collections.abc import Callable

from evals import vec02
from evals.vec02 import Verdict

SUITES: dict[str, Callable[[], list[Verdict]]] = {"vec-02": vec02.run}
