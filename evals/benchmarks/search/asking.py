"""The benchmark's questions, the product's searches, and the clock: every search is asked the same and timed alike.

A question is words of one of the person's own turns, as they half remember it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from django.utils import timezone

from core.isolation.acting import acting_as
from evals.metrics import p50_and_p95
from intake.models import Turn, User
from memory.backends.embedders import Vector, get_embedder
from memory.models.documents import Key
from memory.search import SearchMode, search_chat_history
from memory.search.history import History, HistoryRequest, search_history

# How many results are asked for everywhere.
LIMIT = 10
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


Search = Callable[[User, Question], Any]


def _chat_history(user: User, question: Question, *, mode: SearchMode, rerank: bool = False) -> list[Key]:
    with acting_as(user):
        found = search_chat_history(user=user, query=question.text, limit=LIMIT, mode=mode, rerank=rerank)
    return [hit.key for hit in found.matches]


def _history(user: User, question: Question) -> History:
    """Every source: memory, messages and sessions."""
    with acting_as(user):
        return search_history(HistoryRequest(query=question.text, max_results=LIMIT), user=user, now=timezone.now())


search_semantic = partial(_chat_history, mode=SearchMode.SEMANTIC)
search_hybrid = partial(_chat_history, mode=SearchMode.HYBRID)
# The product's own, called as the tools call them.
OURS: dict[str, Search] = {
    "semantic_db": search_semantic,
    "hybrid_db": search_hybrid,
    "hybrid_reranked_db": partial(_chat_history, mode=SearchMode.HYBRID, rerank=True),
    "search_history_db": _history,
}


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


def timed(asked: Sequence[AskedQuestions], *searches: Search) -> list[Timed]:
    """Person by person, all of their questions twice: what the first time had to come from the disk is then in memory.

    Questions that warm up the rest, and are not counted, come before that. Several searches take turns for each person:
    what the machine does meanwhile troubles all alike.
    """
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
    p50, p95 = p50_and_p95(milliseconds, digits=3)
    return {"p50_ms": p50, "p95_ms": p95, "n": len(milliseconds)}
