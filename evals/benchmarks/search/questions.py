"""The benchmark's questions: words of one of the person's own turns, as they half remember it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

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
