"""The faults that may strike a running product, a deck they are drawn from, and when which server was away."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import psutil

from evals.reliability.product import Product

# The poison word: a worker that loads `evals.reliability.mortal_worker` dies when it embeds this.
POISON = "arsenic-for-workers"
# How long a server stays away, in seconds: a restart, and an outage that outlasts a client's first tries.
BROKER_AWAY = (1.0, 3.0)
DATABASE_AWAY = (0.1, 2.0)


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
    """When servers were away: written while faults are made, read after the servers are back."""

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


class Fault(NamedTuple):
    name: str
    strike: Callable[[Product, Timeline, random.Random], None]


def kill_worker_child(product: Product, timeline: Timeline, dice: random.Random) -> None:
    """The process that embeds; its parent puts another in its place."""
    kill([dice.choice(product.workers()[1:])])


def kill_worker(product: Product, timeline: Timeline, dice: random.Random) -> None:
    """The parent and its children, as when memory runs out."""
    kill(product.workers())


def flush_broker(product: Product, timeline: Timeline, dice: random.Random) -> None:
    product.servers.flush_broker()


def stop_broker(product: Product, timeline: Timeline, dice: random.Random) -> None:
    with timeline.away(ServerName.BROKER):
        product.servers.command("stop-broker")
        time.sleep(dice.uniform(*BROKER_AWAY))
        product.servers.command("start-broker")


def silence_broker(product: Product, timeline: Timeline, dice: random.Random) -> None:
    with timeline.away(ServerName.SILENT_BROKER):
        product.servers.command("silence-broker")
        time.sleep(dice.uniform(*BROKER_AWAY))
        product.servers.command("start-broker")


def crash_database(product: Product, timeline: Timeline, dice: random.Random) -> None:
    with timeline.away(ServerName.DATABASE):
        product.servers.command("crash-database")
        time.sleep(dice.uniform(*DATABASE_AWAY))
        product.servers.command("start-database")


FAULTS = (
    Fault("worker process killed", kill_worker_child),
    Fault("worker killed with its children", kill_worker),
    Fault("broker flushed", flush_broker),
    Fault("broker stopped and started", stop_broker),
    Fault("broker silent, then started", silence_broker),
    Fault("database restarted in immediate mode", crash_database),
)


def deal(count: int, dice: random.Random, *, only: str = "") -> list[Fault]:
    """`count` faults in random order, each kind as often as any other, but for one;
    of those with `only` in their name, of which there is one at least.
    """
    kinds = [fault for fault in FAULTS if only in fault.name]
    dealt: list[Fault] = []
    while len(dealt) < count:
        dealt += dice.sample(kinds, len(kinds))
    return dealt[:count]


def kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
