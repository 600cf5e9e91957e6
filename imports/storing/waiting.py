"""Counts a user's passages that wait for their vectors, and estimates the time at the present rate."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field

from core.validation import Shape
from intake.models import User
from memory.models import Embedding

# The rate is that of the last minute.


class VectorsOutput(Shape):
    waiting: Annotated[int, Field(description="Passages that wait for a vector.")]
    seconds: Annotated[int | None, Field(description="About how long at the present rate; null: not known yet.")]


def waiting_vectors(user: User, *, now: datetime) -> VectorsOutput:
    mine = Embedding.objects.for_user(user)
    passages = mine.waiting().count()
    made = mine.filter(embedded_at__gte=now - timedelta(minutes=1)).count()
    if not passages:
        return VectorsOutput(waiting=0, seconds=0)
    return VectorsOutput(waiting=passages, seconds=round(passages * 60 / made) if made else None)
