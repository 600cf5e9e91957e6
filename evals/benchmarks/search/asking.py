"""The benchmark's questions, and the clock: every search, ours or a peer's, is asked the same, timed alike.

A question is words of one of the person's own turns, as they half remember it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from core.isolation.acting import acting_as
from intake.models import Turn, User
from memory.embedders import get_embedder
from memory.embedders.base import Vector

WORDS = 5
# Enough that a person's pages and the database's plans are in memory when the clock starts.
WARM_UP = 3
# A person who said one short thing cannot be asked many different ones.
TRIES = 4


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    vector: Vector
    """By the embedder that is in force: within `synthetic_meaning()` a made-up one."""


@dataclass(frozen=True, slots=True)
class AskedQuestions:
    """One person's questions: `warm_up` is asked first and not counted."""

    user: User
    warm_up: list[Question]
    questions: list[Question]


def ask(users: Sequence[User], *, count: int, seed: int = 0) -> list[AskedQuestions]:
    """`count` different questions or a few more, spread evenly over the people; fewer where little was said."""
    each = -(-count // len(users))
    return [_ask(user, each, np.random.default_rng([seed, user.pk])) for user in users]


def _ask(user: User, count: int, rng: np.random.Generator) -> AskedQuestions:
    with acting_as(user):
        messages = list(Turn.objects.for_user(user).order_by("pk").values_list("user_message", flat=True))
    tries = (_question(messages[rng.integers(len(messages))], rng) for _ in range(TRIES * (WARM_UP + count)))
    embedder = get_embedder()
    different = islice(dict.fromkeys(tries), WARM_UP + count)
    questions = [Question(text, embedder.embed_query(text)) for text in different]
    return AskedQuestions(user, warm_up=questions[:WARM_UP], questions=questions[WARM_UP:] or questions)


def _question(message: str, rng: np.random.Generator) -> str:
    words = message.replace(".", "").lower().split()
    return " ".join(words[place] for place in rng.permutation(len(words))[:WORDS]) + "?"


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
        _ask_twice(one, search, result)
    return result


def timed_beside(asked: Sequence[AskedQuestions], *searches: Search) -> list[Timed]:
    """Each as `timed`, in turns for each person: what the machine does meanwhile troubles all alike."""
    results = [Timed() for _ in searches]
    for one in asked:
        for search, result in zip(searches, results, strict=True):
            _ask_twice(one, search, result)
    return results


def _ask_twice(one: AskedQuestions, search: Search, result: Timed) -> None:
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
