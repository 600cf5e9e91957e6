"""When which server was away, for telling afterwards what a request met."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum


class ServerName(StrEnum):
    DATABASE = "database"
    # Away as a server that is stopped, which refuses, and as one that hangs, which lets everybody in and says nothing.
    BROKER = "broker"
    SILENT_BROKER = "silent broker"


@dataclass(slots=True)
class Absence:
    """From the moment before it left to the moment after it answered again; seconds of a monotonic clock."""

    server: ServerName
    began: float
    ended: float = float("inf")

    def touches(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


@dataclass(slots=True)
class Timeline:
    """Written by whoever makes servers leave, read once they are back."""

    absences: list[Absence] = field(default_factory=list)

    @contextmanager
    def away(self, server: ServerName) -> Iterator[None]:
        absence = Absence(server, time.monotonic())
        self.absences.append(absence)
        try:
            yield
        finally:
            absence.ended = time.monotonic()

    def touched(self, server: ServerName, began: float, ended: float) -> bool:
        """Whether it was away at any moment in between."""
        return any(absence.touches(began, ended) for absence in self._of(server))

    def is_back_since(self, server: ServerName, moment: float, *, at_most: float) -> bool:
        """Whether it was back at this moment, and for no more than so many seconds."""
        return any(0 <= moment - absence.ended <= at_most for absence in self._of(server))

    def _of(self, server: ServerName) -> list[Absence]:
        return [absence for absence in self.absences if absence.server is server]
