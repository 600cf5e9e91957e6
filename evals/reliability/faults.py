"""What may go wrong beneath a running product, and a deck from which it is dealt."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import psutil

from evals.reliability.product import Product
from evals.reliability.timeline import ServerName, Timeline

# How long a server stays away, in seconds: a restart, and an outage that outlasts a client's first tries.
BROKER_AWAY = (1.0, 3.0)
DATABASE_AWAY = (0.1, 2.0)


class Fault(NamedTuple):
    name: str
    strike: Callable[[Product, Timeline, random.Random], None]


def kill_worker_child(product: Product, timeline: Timeline, dice: random.Random) -> None:
    """The process that embeds; its parent puts another in its place."""
    _kill([dice.choice(product.workers()[1:])])


def kill_worker(product: Product, timeline: Timeline, dice: random.Random) -> None:
    """The parent and its children, as when memory runs out."""
    _kill(product.workers())


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


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
