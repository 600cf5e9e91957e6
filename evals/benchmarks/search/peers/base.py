"""A peer of the benchmark: another store that could hold the same vectors and find the nearest among them.

numpy is the first: one person's vectors in memory and nothing around them, the floor and what others are checked by.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from evals.benchmarks.search.stored import Stored
from intake.models import User
from memory.embedders.base import Vector, normalised
from memory.models.corpora import Key

INSTALL = "pip install -r requirements/peers.txt"


class PeerMissing(Exception):
    """The peer cannot run here; the message says what is missing and what would bring it."""


class Peer(ABC):
    """Made with an empty folder of its own. Making one raises `PeerMissing` where it cannot run."""

    name: str

    @abstractmethod
    def __init__(self, folder: Path) -> None: ...

    @abstractmethod
    def load(self, people: Iterable[Stored]) -> None:
        """Take in everybody's vectors, with what the peer has to find one person's quickly."""

    @abstractmethod
    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
        """The turns of the person's `limit` parts that are nearest by cosine distance, the nearest first."""

    def close(self) -> None:  # noqa: B027 (not everybody holds something)
        """Let go of what is open, so that the folder can be removed."""


class Exact(Peer):
    """See Peer. `further`: passages further on in a long text count as so much farther."""

    name = "numpy"

    def __init__(self, folder: Path, *, further: float = 0.0) -> None:
        self._people: dict[int, Stored] = {}
        self._further = further

    def load(self, people: Iterable[Stored]) -> None:
        """See Peer."""
        for person in people:
            self._people[person.user.pk] = replace(person, vectors=normalised(person.vectors))

    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
        """See Peer."""
        person = self._people[user.pk]
        nearness = person.vectors @ vector
        if self._further:
            nearness = nearness - self._further * person.is_further
        limit = min(limit, len(nearness))
        nearest = np.argpartition(-nearness, limit - 1)[:limit]
        return [person.keys[row] for row in nearest[np.argsort(-nearness[nearest], kind="stable")]]
