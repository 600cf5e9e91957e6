"""The faults that may strike a running product, a deck they are drawn from, and when which server was away."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import psutil

from evals.reliability.product import Product

# The poison word: a worker that loads `evals.reliability.mortal_worker` dies when it embeds this.
POISON = "arsenic-for-workers"
# The variable with the number of attempts at a row in that worker, and its lease in seconds.
MORTAL = "EVALS_MORTAL_WORKER"


class ServerName(StrEnum):
    DATABASE = "database"
    # Away as a server that is stopped, which refuses, and as one that hangs, which lets everybody in and says nothing.
    BROKER = "broker"
    SILENT_BROKER = "silent broker"


# How long a server stays away, in seconds: a restart, and an outage that outlasts a client's first tries.
AWAY_SECONDS = {
    ServerName.DATABASE: (0.1, 2.0),
    ServerName.BROKER: (1.0, 3.0),
    ServerName.SILENT_BROKER: (1.0, 3.0),
}


class Absence(NamedTuple):
    """From the moment before it left to the moment after it answered again; seconds of a monotonic clock."""

    server: ServerName
    began: float
    ended: float


@dataclass(slots=True)
class Timeline:
    """When servers were away: written while faults are made, read after the servers are back."""

    absences: list[Absence] = field(default_factory=list)

    def touched(self, server: ServerName, began: float, ended: float) -> bool:
        """Whether it was away at any moment in between."""
        return any(each.server is server and each.began <= ended and began <= each.ended for each in self.absences)

    def is_back_since(self, server: ServerName, moment: float, *, at_most: float) -> bool:
        """Whether it was back at this moment, and for no more than so many seconds."""
        return any(each.server is server and 0 <= moment - each.ended <= at_most for each in self.absences)


Strike = Callable[[Product, Timeline, random.Random], None]


class Fault(NamedTuple):
    name: str
    strike: Strike


def kill_worker(product: Product, timeline: Timeline, dice: random.Random) -> None:
    """With its children, as when memory runs out; it is started again."""
    kill(product.programs["worker"].family())


def flush_broker(product: Product, timeline: Timeline, dice: random.Random) -> None:
    product.servers.flush_broker()


def outage(server: ServerName, leave: str, come_back: str) -> Strike:
    """By these two commands of the throw-away servers."""

    def strike(product: Product, timeline: Timeline, dice: random.Random) -> None:
        began = time.monotonic()
        product.servers.command(leave)
        time.sleep(dice.uniform(*AWAY_SECONDS[server]))
        product.servers.command(come_back)
        timeline.absences.append(Absence(server, began, time.monotonic()))

    return strike


FAULTS = (
    Fault("worker killed", kill_worker),
    Fault("broker flushed", flush_broker),
    Fault("broker stopped and started", outage(ServerName.BROKER, "stop-broker", "start-broker")),
    Fault("broker silent, then started", outage(ServerName.SILENT_BROKER, "silence-broker", "start-broker")),
    Fault("database restarted in immediate mode", outage(ServerName.DATABASE, "crash-database", "start-database")),
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
