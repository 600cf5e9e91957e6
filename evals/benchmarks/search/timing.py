"""The clock: every search, ours or a peer's, is asked the same questions in the same order and timed alike."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evals.benchmarks.search.questions import Asked, Question
from intake.models import User

Timing = dict[str, float]
"""`p50_ms`, `p95_ms`, and `n`, the number of questions."""


@dataclass(frozen=True, slots=True)
class Timed:
    """How long each question took, and what was answered, in the order of the questions."""

    milliseconds: list[float]
    answers: list[Any]

    @property
    def figures(self) -> Timing:
        return figures(self.milliseconds)


Search = Callable[[User, Question], Any]


def timed(asked: Sequence[Asked], search: Search) -> Timed:
    """Person by person: first the questions that warm up, then those that count."""
    result = Timed([], [])
    for one in asked:
        _ask(one, search, result)
    return result


def timed_beside(asked: Sequence[Asked], *searches: Search) -> list[Timed]:
    """Each as `timed`, in turns for each person: what the machine does meanwhile troubles all alike."""
    results = [Timed([], []) for _ in searches]
    for one in asked:
        for search, result in zip(searches, results, strict=True):
            _ask(one, search, result)
    return results


def _ask(one: Asked, search: Search, result: Timed) -> None:
    for question in one.warm_up:
        search(one.user, question)
    for question in one.questions:
        begun = time.perf_counter()
        answer = search(one.user, question)
        result.milliseconds.append(1000 * (time.perf_counter() - begun))
        result.answers.append(answer)


def figures(milliseconds: Sequence[float]) -> Timing:
    p50, p95 = np.percentile(milliseconds, [50, 95])
    return {"p50_ms": round(float(p50), 3), "p95_ms": round(float(p95), 3), "n": len(milliseconds)}
