"""The clock: every search, ours or a peer's, is asked the same questions in the same order and timed alike."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from evals.benchmarks.search.questions import AskedQuestions, Question
from intake.models import User

Timing = dict[str, float]
"""`p50_ms`, `p95_ms`, and `n`, the number of questions; of a search also `first_p50_ms` and `first_p95_ms`."""


@dataclass(frozen=True, slots=True)
class Timed:
    """How long each question took, the first time and the second, and what was answered; in the questions' order."""

    first: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)

    @property
    def figures(self) -> Timing:
        first = figures(self.first)
        return figures(self.milliseconds) | {f"first_{name}": first[name] for name in ("p50_ms", "p95_ms")}


Search = Callable[[User, Question], Any]


def timed(asked: Sequence[AskedQuestions], search: Search) -> Timed:
    """Person by person, all of their questions twice: what the first time had to come from the disk is then in memory.

    Questions that warm up the rest, and are not counted, come before that.
    """
    result = Timed()
    for one in asked:
        _ask(one, search, result)
    return result


def timed_beside(asked: Sequence[AskedQuestions], *searches: Search) -> list[Timed]:
    """Each as `timed`, in turns for each person: what the machine does meanwhile troubles all alike."""
    results = [Timed() for _ in searches]
    for one in asked:
        for search, result in zip(searches, results, strict=True):
            _ask(one, search, result)
    return results


def _ask(one: AskedQuestions, search: Search, result: Timed) -> None:
    for question in one.warm_up:
        search(one.user, question)
    for question in one.questions:
        result.first.append(_clocked(search, one.user, question)[0])
    for question in one.questions:
        milliseconds, answer = _clocked(search, one.user, question)
        result.milliseconds.append(milliseconds)
        result.answers.append(answer)


def _clocked(search: Search, user: User, question: Question) -> tuple[float, Any]:
    begun = time.perf_counter()
    answer = search(user, question)
    return 1000 * (time.perf_counter() - begun), answer


def figures(milliseconds: Sequence[float]) -> Timing:
    p50, p95 = np.percentile(milliseconds, [50, 95])
    return {"p50_ms": round(float(p50), 3), "p95_ms": round(float(p95), 3), "n": len(milliseconds)}
