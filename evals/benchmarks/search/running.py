"""The run from an empty database to figures; each step says on standard error what it is about."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from django.db import connection
from django.utils import timezone

from core.isolation.acting import is_cluster
from evals.benchmarks.base import Figures
from evals.benchmarks.saving import time_saves
from evals.benchmarks.search import plots
from evals.benchmarks.search.asking import OURS, AskedQuestions, Question, Search, Timing, ask, figures, timed
from evals.benchmarks.search.histories import Pool, load, made_pool
from evals.benchmarks.search.meaning import synthetic_meaning
from evals.benchmarks.search.measuring import Groups, Measured
from evals.datasets.loading import Report
from evals.processes import Environment, environment, hardly_limited, own_broker
from evals.scratch import Copy, as_worker, copied, scratch_database
from intake.models import User
from memory.models import Embedding

# More would only be more of the same; those who are not asked are the others among whom somebody is found.
MOST_ASKED = 50
# Shorter histories beside the full ones, as parts of them; some people of each.
SHORTER = (100, 30, 10, 3)
SHORTER_PEOPLE = 4
# Shares of the people that the first of them are asked among.
STAGES = (0.1, 1.0)
PLOTTED_STAGES = (0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class Scale:
    """The first people's timings when the table had so many vectors, of everybody together."""

    rows: int
    results: dict[str, Timing]


class Run:
    """One run's database, as far as it is filled; within its block also what it was at earlier stages."""

    def __init__(self, options: dict[str, Any], database: str, given: Environment, report: Report) -> None:
        self.users, self.turns, self.queries = options["users"], options["turns"], options["queries"]
        self.database, self.given, self.now, self.report = database, given, timezone.now(), report
        self.is_plotted = options["plots"] is not None
        self.people: list[User] = []
        self.shorter: dict[int, list[User]] = {}
        self.scales: list[Scale] = []
        self._kept = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._kept.close()

    def load(self) -> None:
        """Everybody, in stages; at the end the first people are asked the same questions in the database of each."""
        asked: list[AskedQuestions] = []
        earlier: list[tuple[int, Copy]] = []
        with made_pool(self.turns, now=self.now, report=self.report) as pool:
            if self.is_plotted:
                self._load_shorter(pool)
            for share in self._stages():
                missing = max(1, round(share * self.users)) - len(self.people)
                if missing <= 0:
                    continue
                if self.people:
                    earlier.append((_rows(), self._kept.enter_context(copied(self.database))))
                self.people += load(pool, [self.turns] * missing, given=self.given, now=self.now, report=self.report)
                asked = asked or ask(self.people[:MOST_ASKED], count=self.queries)
        self._ask_first(asked, earlier)

    def groups(self) -> Groups:
        """The users and their questions, the shortest histories first."""
        everybody = {**self.shorter, self.turns: _spread(self.people)}
        return {size: ask(people, count=self.queries, seed=1) for size, people in everybody.items()}

    @property
    def everybody(self) -> list[User]:
        return [*(user for users in self.shorter.values() for user in users), *self.people]

    def _stages(self) -> tuple[float, ...]:
        if is_cluster(connection):
            # Of a database on a cluster there is no copy to compare with.
            return (1.0,)
        return PLOTTED_STAGES if self.is_plotted else STAGES

    def _load_shorter(self, pool: Pool) -> None:
        sizes = sorted({size for part in SHORTER if (size := self.turns // part) > 0})
        people = load(
            pool,
            [size for size in sizes for _ in range(SHORTER_PEOPLE)],
            given=self.given,
            now=self.now,
            report=self.report,
        )
        self.shorter = {
            size: people[number * SHORTER_PEOPLE : (number + 1) * SHORTER_PEOPLE] for number, size in enumerate(sizes)
        }

    def _ask_first(self, asked: Sequence[AskedQuestions], earlier: Sequence[tuple[int, Copy]]) -> None:
        """In turns: the machine may be twice as quick by the time that everybody is loaded."""
        rows = [*(rows for rows, _ in earlier), _rows()]
        self.report(f"Asking the first {len(asked)} people among {' and '.join(f'{one:,}' for one in rows)} vectors.")
        timings = {
            name: timed(asked, *(partial(_asked_of, copy, search) for _, copy in earlier), search)
            for name, search in OURS.items()
        }
        for stage, one in enumerate(rows):
            self.scales.append(Scale(one, {name: each[stage].figures for name, each in timings.items()}))


def _asked_of(copy: Copy, search: Search, user: User, question: Question) -> object:
    with copy.standing_in():
        return search(user, question)


def run(options: dict[str, Any], report: Report) -> Figures:
    if options["plots"]:
        # Before anything is made, rather than after an hour.
        plots.check()
        options["plots"].mkdir(parents=True, exist_ok=True)
    with scratch_database() as database, own_broker() as broker:
        # Other processes are configured as this one was: they have the real model.
        given = environment(database=database, broker=broker) | hardly_limited()
        with synthetic_meaning():
            return _measure(options, database, given, report)


def _measure(options: dict[str, Any], database: str, given: Environment, report: Report) -> Figures:
    with Run(options, database, given, report) as filled:
        filled.load()
    rows = _rows()
    measured = Measured(filled.groups())
    measured.ours(report)
    measured.peers(filled.everybody, report)
    requests_per_second, held = measured.over_http(given, report)
    saves = time_saves(filled.people, count=filled.queries)
    measured.results[filled.turns] |= {"save_turn": figures(saves.both), "bare_insert": figures(saves.inserts)}
    result = _figures(filled, measured, rows=rows, requests_per_second=requests_per_second, held=held)
    if options["plots"]:
        plots.draw(result, options["plots"])
    return result


def _figures(
    filled: Run, measured: Measured, *, rows: int, requests_per_second: float, held: dict[int, float]
) -> Figures:
    return {
        "users": filled.users,
        "turns_per_user": filled.turns,
        "rows": rows,
        "results": measured.results[filled.turns],
        "http_rps": requests_per_second,
        "recall": measured.recall,
        "beside": measured.beside,
        "missing": measured.missing,
        "scales": [{"rows": scale.rows, "results": scale.results} for scale in filled.scales],
        "sizes": [{"turns": size, "results": results} for size, results in measured.results.items()],
        "web_rss_mb": [{"turns": size, "mb": mb} for size, mb in held.items()],
    }


def _spread(people: Sequence[User]) -> list[User]:
    """At most `MOST_ASKED`, from the first to the last."""
    return list(people[:: -(-len(people) // MOST_ASKED)])


def _rows() -> int:
    with as_worker():
        return Embedding.objects.exclude(vector=None).count()
