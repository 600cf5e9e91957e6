"""`manage.py chaos`, second part: web processes are killed in mid-answer, and what was written is looked for.

1. Two web processes serve one database and one Redis. Each writes half of the answers; the model notes when it wrote
   which word. Every answer has its asker and a reader at either process.
2. One of the two is killed, and started again as by a supervisor. A reader who loses the line goes on from the last
   event at the next address of theirs, as often as it takes.
3. When all turns are closed, what was kept is compared with what the model had written at the moment of the kill, and
   every answer that was killed is continued at the other process.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median_high
from typing import Any, NamedTuple

import psycopg

from evals.datasets.loading import Report
from evals.processes import is_healthy, wait_until
from evals.reliability.answering import REST, AnswerReader, NumberingModel, question, whole_answer
from evals.reliability.faults import kill
from evals.reliability.product import Person, Product, running_product
from evals.tables import Check
from intake.chats.running import LEASE
from testing.serving import serving

WEBS = ("web", "web 2")
PEOPLE = 8
TIMEOUT_SECONDS = 60
LOOK_SECONDS = 0.1
# Answers are killed so many seconds after the last of them has begun.
KILLED_AFTER = (1.5, 3.0)
LOST_AT_MOST = 1.0
# How long the sweep may take to come, and how much longer a machine may take that has other work.
SWEEP_SECONDS = 5
SPARE_SECONDS = 5
UNTAKEN = "Not every question is taken."
UNHEARD = "Not every reader hears an answer."

_TURNS = "SELECT id, status, assistant_message FROM intake_conversation_turns WHERE id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class AnswersPlan:
    """`words` of each answer, `pause` seconds apart."""

    answers: int
    kills: int
    seed: int
    words: int = 150
    pause: float = 0.1
    logs: Path | None = None

    @property
    def closed_within(self) -> float:
        return LEASE.total_seconds() + SWEEP_SECONDS + SPARE_SECONDS


class KeptAnswer(NamedTuple):
    """A turn in the database."""

    status: str
    text: str


@dataclass(slots=True)
class Asked:
    """One answer with its readers; the first of them asked for it."""

    number: int
    web: str
    person: Person
    readers: list[AnswerReader]

    @property
    def turn_id(self) -> int:
        return self.readers[0].turn_id or 0

    @property
    def continuing(self) -> dict[str, Any]:
        """The body of a request for the rest of the answer."""
        place = self.readers[0].place
        return {"conversation_id": place["conversationId"], "continue": place["turnNumber"]}


@dataclass(slots=True)
class AnswersOutcome:
    """Characters, and seconds after the kill; `wrong`: answers of which a reader heard anything else than was kept."""

    killed: int = 0
    written: int = 0
    kept: int = 0
    most_lost_seconds: float = 0.0
    closed_after: list[float] = field(default_factory=list)
    unclosed: int = 0
    others: int = 0
    others_whole: int = 0
    readers: int = 0
    lost_lines: int = 0
    # At the other process, and at the killed one when it was back.
    heard_after: list[float] = field(default_factory=list)
    heard_there_after: list[float] = field(default_factory=list)
    unended: int = 0
    wrong: list[int] = field(default_factory=list)
    continued: int = 0

    def checks(self, plan: AnswersPlan) -> list[Check]:
        closed_within, heard_within = plan.closed_within, plan.closed_within + SPARE_SECONDS
        is_closed = not self.unclosed and max(self.closed_after, default=0) <= closed_within
        is_heard = max(self.heard_after, default=0) <= heard_within
        waited = f"{_spread(self.heard_there_after)}; without an end: {self.unended:,}"
        kept = f"{self.kept:,} of {self.written:,} characters"
        lost = f"the last {self.most_lost_seconds:.2f} s"
        lines = f"{self.lost_lines:,} by {self.readers:,}"
        are_whole = self.others_whole == self.others
        return [
            Check("answers killed in mid-answer", f"{self.killed:,}", self.killed > 0, "some"),
            Check("kept of what was written", kept, 0 < self.kept <= self.written, "most of it"),
            Check(
                "lost of what was written, at most", lost, self.most_lost_seconds <= LOST_AT_MOST, f"{LOST_AT_MOST:g} s"
            ),
            Check(
                "closed as interrupted (p50 / max)",
                _spread(self.closed_after),
                is_closed,
                f"at most {closed_within:g} s",
            ),
            Check(
                "readers at the other process heard of it",
                _spread(self.heard_after),
                is_heard,
                f"at most {heard_within:g} s",
            ),
            Check("those who waited for the killed one", waited, not self.unended, "none without"),
            Check("lines lost by readers", lines, self.lost_lines > 0, "some"),
            Check("answers mixed up, or read in part", f"{len(self.wrong):,}", not self.wrong, "none"),
            Check("continued", f"{self.continued:,}", self.continued == self.killed, f"{self.killed:,}"),
            Check("whole, since they were not killed", f"{self.others_whole:,}", are_whole, f"{self.others:,}"),
        ]


def run(plan: AnswersPlan, report: Report) -> AnswersOutcome:
    model, outcome = NumberingModel(words=plan.words, pause=plan.pause), AnswersOutcome()
    dice = random.Random(plan.seed)  # noqa: S311
    report("Starting a product of its own, with two web processes.")
    with serving(model.application) as address:
        extra = {"LLM_MODEL": "fake", "LLM_BASE_URL": f"{address}/v1", "CHAT_TITLES": "0"}
        with running_product(extra=extra, logs=plan.logs, webs=WEBS) as product:
            people = product.people(PEOPLE)
            with product.servers.connect_as_superuser() as connection:
                for turn in range(plan.kills):
                    victim = WEBS[turn % len(WEBS)]
                    report(f"Kill {turn + 1} of {plan.kills}: {victim}, with {plan.answers} answers.")
                    numbers = range(turn * plan.answers, (turn + 1) * plan.answers)
                    asked = _ask(product, numbers, people)
                    strike = Kill(plan, product, connection, model, victim, asked)
                    strike.kill(after=dice.uniform(*KILLED_AFTER))
                    strike.wait_for_ends()
                    strike.compare(outcome)
                    strike.go_on(outcome)
    return outcome


def _ask(product: Product, numbers: Sequence[int], people: list[Person]) -> list[Asked]:
    """Half of the answers at each process, all at once, and then a reader of each answer at both."""
    asked = []
    for number in numbers:
        web, person = WEBS[number % len(WEBS)], people[number % len(people)]
        asker = AnswerReader(_from(product, web), person.headers, asks=question(number))
        asked.append(Asked(number, web, person, [asker.start()]))
    wait_until(lambda: all(each.turn_id for each in asked), seconds=TIMEOUT_SECONDS, otherwise=lambda: UNTAKEN)
    for each in asked:
        each.readers += [
            AnswerReader([place], each.person.headers, turn_id=each.turn_id).start()
            for place in _from(product, each.web)
        ]
    return asked


def _from(product: Product, web: str) -> list[str]:
    """The addresses of this process and of the other."""
    return [product.addresses[web], *(address for name, address in product.addresses.items() if name != web)]


@dataclass(slots=True)
class Kill:
    """One kill, and the answers that were being written. Moments are those of the monotonic clock."""

    plan: AnswersPlan
    product: Product
    connection: psycopg.Connection[Any]
    model: NumberingModel
    victim: str
    asked: list[Asked]
    killed_at: float = 0.0
    closed_at: dict[int, float] = field(default_factory=dict)

    @property
    def readers(self) -> list[AnswerReader]:
        return [reader for each in self.asked for reader in each.readers]

    def kill(self, *, after: float) -> None:
        """So many seconds after every reader has heard something."""
        wait_until(
            lambda: all(reader.text for reader in self.readers), seconds=TIMEOUT_SECONDS, otherwise=lambda: UNHEARD
        )
        time.sleep(after)
        self.killed_at = time.monotonic()
        kill(self.product.programs[self.victim].family())

    def wait_for_ends(self) -> None:
        """Until all turns are closed and all readers have heard it, or should have."""
        longest = self.killed_at + max(self.plan.closed_within, self.plan.words * self.plan.pause) + SPARE_SECONDS
        while len(self.closed_at) < len(self.asked) and time.monotonic() < longest:
            for turn_id, turn in _kept(self.connection, self.asked).items():
                if turn.status != "streaming":
                    self.closed_at.setdefault(turn_id, time.monotonic())
            time.sleep(LOOK_SECONDS)
        # A machine with other work takes its time to start a process.
        self.product.programs[self.victim].wait_until(lambda: is_healthy(self.product.addresses[self.victim]))
        longest = max(longest, time.monotonic() + SPARE_SECONDS)
        for reader in self.readers:
            reader.leave(at=longest)

    def compare(self, outcome: AnswersOutcome) -> None:
        kept = _kept(self.connection, self.asked)
        outcome.readers += len(self.readers)
        outcome.lost_lines += sum(reader.lost_lines for reader in self.readers)
        outcome.unended += sum(reader.ending is None for reader in self.readers)
        for each in self.asked:
            whole, turn = self._whole(each), kept[each.turn_id]
            # All that was kept and nothing else; a reader may have seen a moment more than was kept.
            texts = [reader.text for reader in each.readers]
            if not all(text.startswith(turn.text.rstrip()) and whole.startswith(text.rstrip()) for text in texts):
                outcome.wrong.append(each.number)
            if self._is_killed(each):
                self._compare_killed(each, turn, outcome)
            else:
                outcome.others += 1
                outcome.others_whole += (turn.status, turn.text.strip()) == ("complete", whole.strip())

    def go_on(self, outcome: AnswersOutcome) -> None:
        """Continue what was killed, all of it at once, at the other process."""
        killed = [each for each in self.asked if self._is_killed(each)]
        before = _kept(self.connection, killed)
        *_, address = _from(self.product, self.victim)
        readers = [AnswerReader([address], each.person.headers, asks=each.continuing).start() for each in killed]
        deadline = time.monotonic() + TIMEOUT_SECONDS
        for reader in readers:
            reader.leave(at=deadline)
        now = _kept(self.connection, killed)
        for each, reader in zip(killed, readers, strict=True):
            text = before[each.turn_id].text + REST
            outcome.continued += reader.text == text and now[each.turn_id] == ("complete", text)

    def _whole(self, each: Asked) -> str:
        return whole_answer(each.number, self.plan.words)

    def _written(self, each: Asked) -> str:
        return self.model.written(each.number, before=self.killed_at)

    def _is_killed(self, each: Asked) -> bool:
        """One that was whole before was not."""
        return each.web == self.victim and self._written(each) != self._whole(each)

    def _compare_killed(self, each: Asked, turn: KeptAnswer, outcome: AnswersOutcome) -> None:
        outcome.killed += 1
        outcome.written += len(self._written(each))
        outcome.kept += len(turn.text)
        lost = self.model.lost_seconds(each.number, turn.text, killed_at=self.killed_at)
        outcome.most_lost_seconds = max(outcome.most_lost_seconds, lost)
        outcome.unclosed += turn.status != "interrupted"
        outcome.closed_after.append(self.closed_at.get(each.turn_id, time.monotonic()) - self.killed_at)
        asker, here, there = each.readers
        outcome.heard_after += [one.ended_at - self.killed_at for one in (asker, there) if one.ending is not None]
        outcome.heard_there_after += [here.ended_at - self.killed_at] if here.ending is not None else []


def _kept(connection: psycopg.Connection[Any], asked: list[Asked]) -> dict[int, KeptAnswer]:
    rows = connection.execute(_TURNS, [[each.turn_id for each in asked]]).fetchall()
    return {turn_id: KeptAnswer(status, text) for turn_id, status, text in rows}


def _spread(seconds: list[float]) -> str:
    """The median and the longest."""
    return f"{median_high(seconds):.1f} / {max(seconds):.1f} s" if seconds else "none"
