"""numpy: one person's vectors in memory and nothing else around them: the floor, and what the others are checked by."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from evals.benchmarks.search.peers.base import Peer
from evals.benchmarks.search.stored import Stored
from intake.models import User
from memory.embedders.base import Vector, normalised
from memory.models.corpora import Key


class Exact(Peer):
    """See Peer."""

    name = "numpy"

    def __init__(self, folder: Path) -> None:
        self._people: dict[int, Stored] = {}

    def load(self, people: Iterable[Stored]) -> None:
        """See Peer."""
        for person in people:
            self._people[person.user.pk] = Stored(person.user, person.keys, normalised(person.vectors))

    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
        """See Peer."""
        person = self._people[user.pk]
        nearness = person.vectors @ vector
        limit = min(limit, len(nearness))
        nearest = np.argpartition(-nearness, limit - 1)[:limit]
        return [person.keys[row] for row in nearest[np.argsort(-nearness[nearest], kind="stable")]]
