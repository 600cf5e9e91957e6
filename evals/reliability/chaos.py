"""`manage.py chaos`: turns are saved over HTTP while everything beneath is made to fail; then every one is looked for.

1. People save turns one after the other, each with a word of its own, and try again until they are acknowledged.
2. Meanwhile faults strike, evenly over the run and in random order; one turn kills every worker that embeds it.
3. After the last fault the time is taken until the index has all of every acknowledged turn.
4. The acknowledged turns are compared with those in the database, and a sample is searched for through the API.
"""

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from evals.datasets.loading import Report
from evals.metrics import Latency
from evals.processes import call
from evals.reliability import faults
from evals.reliability.faults import MORTAL, POISON, ServerName, Timeline
from evals.reliability.product import Product, running_product
from evals.reliability.saving import Kept, Save, Saver, Words, kept_turns, not_found, rows_shown_to_staff
from evals.tables import Check, none_of, some

LOOK_SECONDS = 0.2
SAMPLE = 50
EXAMPLES = 5
# A restart has an aftermath of so many seconds: whoever comes in them finds what the restart has left behind.
AFTERMATH_SECONDS = 10
BROKER_AWAY = (ServerName.BROKER, ServerName.SILENT_BROKER)
# Of fewer saves than these a median says nothing, and is not judged.
FEWEST_TO_JUDGE = 20
# So many milliseconds more may a save take, at the median, while the broker is away.
SLOWER_AT_MOST_MS = 200


@dataclass(frozen=True, slots=True)
class Plan:
    turns: int
    faults: int
    seed: int
    people: int = 6
    # Within so many seconds of the last fault everything must be searchable.
    patience: float = 30.0
    # How often a row is tried before it is set aside, and for how long a worker that died may keep what it took.
    attempts: int = 5
    lease: int = 15
    # A part of the name of every fault that may strike.
    only: str = ""
    # Where the programs' logs are kept, if anywhere.
    logs: Path | None = None


@dataclass(slots=True)
class Outcome:
    """`searchable_after`: seconds after the last fault; None when the deadline passed."""

    saved: int = 0
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    unfinished: int = 0
    quarantined: int = 0
    quarantined_for_staff: int = 0
    poisoned: int = 1
    searchable_after: float | None = None
    unsearchable: int = 0
    searched_for: int = 0
    not_found: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    broker_alive: Latency = field(default_factory=Latency)
    broker_refusing: Latency = field(default_factory=Latency)
    broker_silent: Latency = field(default_factory=Latency)
    failed_while_away: Counter[str] = field(default_factory=Counter)
    failed_while_there: Counter[str] = field(default_factory=Counter)
    after_restarts: int = 0
    failed_after_restarts: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def checks(self, plan: Plan) -> list[Check]:
        searchable = "never" if self.searchable_after is None else f"{self.searchable_after:.1f} s"
        if self.unsearchable:
            searchable = f"{searchable}, {self.unsearchable:,} turns missing"
        saved = f"{self.saved:,} in {self.seconds:.0f} s"
        quarantined = {self.quarantined, self.quarantined_for_staff} == {self.poisoned}
        only_poison = f"{self.poisoned}: what kills its worker, and nothing else"
        missed = f", not {', '.join(self.not_found[:EXAMPLES])}" if self.not_found else ""
        found = f"{self.searched_for - len(self.not_found):,}{missed}"
        kinds = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items()))
        restarts = f"{self.failed_after_restarts.total():,} of {self.after_restarts:,}"
        return [
            Check(
                "faults", f"{self.faults.total():,}", self.faults.total() >= plan.faults, f"at least {plan.faults:,}"
            ),
            Check("of each kind", kinds),
            Check("turns saved (acknowledged)", saved, self.saved >= plan.turns, f"at least {plan.turns:,}"),
            none_of("lost", self.lost),
            none_of("duplicated", self.duplicated),
            Check(
                "quarantined, and seen by staff",
                f"{self.quarantined:,}, {self.quarantined_for_staff:,}",
                quarantined,
                only_poison,
            ),
            Check(
                "all searchable after the last fault",
                searchable,
                self.searchable_after is not None,
                f"at most {plan.patience:g} s",
            ),
            Check("found through the API", found, not self.not_found, f"{self.searched_for:,}"),
            Check("save, broker alive (p50 / p95 / max)", str(self.broker_alive)),
            self._beside_alive("save, broker refusing", self.broker_refusing),
            self._beside_alive("save, broker hanging", self.broker_silent),
            Check("requests failed while the database was away", some(self.failed_while_away)),
            none_of("requests failed while it was there", self.failed_while_there),
            Check(
                f"of those begun in the {AFTERMATH_SECONDS} s after it was back",
                restarts,
                not self.failed_after_restarts,
                "none",
            ),
        ]

    def _beside_alive(self, name: str, away: Latency) -> Check:
        if min(away.count, self.broker_alive.count) < FEWEST_TO_JUDGE:
            return Check(name, f"{away}, too few to judge")
        added = away.p50 - self.broker_alive.p50
        return Check(
            name, f"{away}, {added:+,.0f} ms at p50", added <= SLOWER_AT_MOST_MS, f"at most +{SLOWER_AT_MOST_MS} ms"
        )


def run(plan: Plan, report: Report) -> Outcome:
    extra = {MORTAL: f"{plan.attempts},{plan.lease}"}
    report("Starting a product of its own.")
    poisonable = ["--include=evals.reliability.mortal_worker"]
    with running_product(extra=extra, worker_options=poisonable, logs=plan.logs) as product:
        return _run(plan, product, report)


def _run(plan: Plan, product: Product, report: Report) -> Outcome:
    words, timeline, outcome = Words(), Timeline(), Outcome()
    savers = [
        Saver(product.address, person, words, seed=seed)
        for seed, person in enumerate(product.people(plan.people), start=plan.seed)
    ]
    poison = savers[0].save(f"{{word}} {POISON}")
    began = time.monotonic()
    last_fault = _save_under_faults(plan, product, savers, timeline, outcome, report)
    outcome.seconds = time.monotonic() - began
    saves = [save for saver in savers for save in saver.saves if save is not poison]
    outcome.saved = len(saves)
    with product.servers.connect_as_superuser() as connection:
        _wait_until_searchable(plan, connection, saves, last_fault, outcome)
        report(f"Waiting for {POISON} to be set aside.")
        _wait_for_quarantine(plan, connection, poison)
        _compare(kept_turns(connection), saves, poison, outcome)
    outcome.quarantined_for_staff = call(rows_shown_to_staff, product.environment)
    sample = random.Random(plan.seed).sample(saves, min(SAMPLE, len(saves)))  # noqa: S311
    outcome.searched_for, outcome.not_found = len(sample), not_found(product.address, sample)
    _measure(saves, timeline, outcome)
    return outcome


def _save_under_faults(
    plan: Plan, product: Product, savers: list[Saver], timeline: Timeline, outcome: Outcome, report: Report
) -> float:
    """Until as many turns are saved and as many faults have struck as planned; the moment of the last fault's end."""
    is_over = threading.Event()

    def saved() -> int:
        return sum(save.is_acknowledged for saver in savers for save in saver.saves)

    threads = [threading.Thread(target=saver.go_on, args=(is_over.is_set,), daemon=True) for saver in savers]
    for thread in threads:
        thread.start()
    try:
        dice = random.Random(plan.seed)  # noqa: S311
        for number, fault in enumerate(faults.deal(plan.faults, dice, only=plan.only), start=1):
            # The last one strikes when the last turn is saved.
            _wait_until(lambda due=number * plan.turns // plan.faults: saved() >= due, threads)  # type: ignore[misc]
            report(f"{saved():,} saved. Fault {number} of {plan.faults}: {fault.name}.")
            fault.strike(product, timeline, dice)
            outcome.faults[fault.name] += 1
        last_fault = time.monotonic()
        _wait_until(lambda: saved() >= plan.turns, threads)
        return last_fault
    finally:
        is_over.set()
        for thread, saver in zip(threads, savers, strict=True):
            thread.join()
            saver.close()


def _wait_until(is_so: Callable[[], bool], threads: list[threading.Thread]) -> None:
    while not is_so():
        if not all(thread.is_alive() for thread in threads):
            raise RuntimeError("A client ended early; the lines above say why.")
        time.sleep(LOOK_SECONDS / 4)


def _wait_until_searchable(
    plan: Plan, connection: psycopg.Connection[Any], saves: list[Save], last_fault: float, outcome: Outcome
) -> None:
    words = {save.word for save in saves}
    while True:
        searchable = {kept.word for kept in kept_turns(connection) if kept.is_searchable}
        after = time.monotonic() - last_fault
        outcome.unsearchable = len(words - searchable)
        if not outcome.unsearchable:
            outcome.searchable_after = after
        if not outcome.unsearchable or after > plan.patience:
            return
        time.sleep(LOOK_SECONDS)


def _wait_for_quarantine(plan: Plan, connection: psycopg.Connection[Any], poison: Save) -> None:
    """As long as every attempt may take, with a worker that starts anew for each."""
    deadline = time.monotonic() + plan.attempts * (plan.lease + 30)
    while time.monotonic() < deadline:
        if any(kept.quarantined for kept in kept_turns(connection) if kept.word == poison.word):
            return
        time.sleep(LOOK_SECONDS)


def _compare(kept: list[Kept], saves: list[Save], poison: Save, outcome: Outcome) -> None:
    times = Counter(turn.word for turn in kept)
    places = {turn.place for turn in kept if turn.status == "complete"}
    outcome.lost = [save.word for save in saves if save.place not in places]
    outcome.duplicated = [save.word for save in [*saves, poison] if times[save.word] > 1]
    outcome.quarantined = sum(turn.quarantined for turn in kept)


def _measure(saves: list[Save], timeline: Timeline, outcome: Outcome) -> None:
    """Latencies of attempts that met no absent database, by the broker meanwhile, and what failed."""
    milliseconds: dict[tuple[ServerName, ...], list[float]] = defaultdict(list)
    for attempt in (attempt for save in saves for attempt in save.attempts):
        span = attempt.began, attempt.ended
        was_away = timeline.touched(ServerName.DATABASE, *span)
        if attempt.failure:
            (outcome.failed_while_away if was_away else outcome.failed_while_there)[attempt.failure] += 1
        if was_away:
            continue
        # Begun once the database accepts connections again, and over before it goes away again.
        if timeline.is_back_since(ServerName.DATABASE, attempt.began, at_most=AFTERMATH_SECONDS):
            outcome.after_restarts += 1
            outcome.failed_after_restarts.update([attempt.failure] if attempt.failure else [])
        if not attempt.failure:
            ways = tuple(way for way in BROKER_AWAY if timeline.touched(way, *span))
            milliseconds[ways].append(attempt.milliseconds)
    outcome.broker_alive = Latency.of(milliseconds[()])
    outcome.broker_refusing = Latency.of(milliseconds[ServerName.BROKER,])
    outcome.broker_silent = Latency.of(milliseconds[ServerName.SILENT_BROKER,])
