"""Counts a user's passages that wait for their vectors, and estimates the time at the present rate."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from intake.models import User
from memory.models import Embedding

# The rate is that of the last minute.
RATE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Waiting:
    """`seconds` is None if no vector was made for a minute."""

    passages: int
    seconds: int | None


def waiting_vectors(user: User, *, now: datetime) -> Waiting:
    mine = Embedding.objects.for_user(user)
    passages = mine.waiting().count()
    made = mine.filter(embedded_at__gte=now - timedelta(seconds=RATE_SECONDS)).count()
    if not passages:
        return Waiting(0, 0)
    return Waiting(passages, round(passages * RATE_SECONDS / made) if made else None)
