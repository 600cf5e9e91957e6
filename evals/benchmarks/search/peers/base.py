"""What a peer is to the benchmark: something else that could hold the same vectors and find the nearest among them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from evals.benchmarks.search.stored import Stored
from intake.models import User
from memory.embedders.base import Vector
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
