"""The run from an empty database to figures; each step says on standard error what it is about."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from django.db import connection

from core.isolation.acting import is_cluster
from evals.benchmarks.base import Figures
from evals.benchmarks.saving import time_saves
from evals.benchmarks.search import plots
from evals.benchmarks.search.asking import OURS, AskedQuestions, Question, Search, ask, figures, timed
from evals.benchmarks.search.histories import made_pool
from evals.benchmarks.search.meaning import synthetic_meaning
from evals.benchmarks.search.measuring import Measured, recall_of_one_person
from evals.datasets.loading import Report
from evals.processes import BEYOND_REACH, Environment, environment, own_broker
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

Histories = dict[int, list[User]]
"""People by how many turns each of them has, the shortest histories first."""


def run(options: dict[str, Any], report: Report) -> Figures:
    if options["plots"]:
        # Before anything is made, rather than after an hour.
        plots.check()
        options["plots"].mkdir(parents=True, exist_ok=True)
    with scratch_database() as database, own_broker() as broker:
        # Other processes are configured as this one was: they have the real model.
        given = environment(database=database, broker=broker) | BEYOND_REACH
        with synthetic_meaning():
            result = _measure(options, database, given, report)
    if options["datasets"]:
        result["recall"]["real_vectors"] = recall_of_one_person(options["datasets"], report)
    if options["plots"]:
        plots.draw(result, options["plots"])
    return result


def _measure(options: dict[str, Any], database: str, given: Environment, report: Report) -> Figures:
    histories, scales = _fill(options, database, given, report)
    rows, turns, people = _rows(), options["turns"], histories[options["turns"]]
    # Of those with the longest histories at most so many, from the first to the last.
    asked_people = {**histories, turns: people[:: -(-len(people) // MOST_ASKED)]}
    measured = Measured({size: ask(those, count=options["queries"], seed=1) for size, those in asked_people.items()})
    measured.ours(report)
    measured.peers([user for those in histories.values() for user in those], report)
    requests_per_second, held = measured.over_http(given, report)
    saves = time_saves(people, count=options["queries"])
    measured.results[turns] |= {"save_turn": figures(saves.both), "bare_insert": figures(saves.inserts)}
    return {
        "users": options["users"],
        "turns_per_user": turns,
        "rows": rows,
        "results": measured.results[turns],
        "http_rps": requests_per_second,
        "recall": measured.recall,
        "beside": measured.beside,
        "missing": measured.missing,
        "scales": scales,
        "sizes": [{"turns": size, "results": results} for size, results in measured.results.items()],
        "web_rss_mb": [{"turns": size, "mb": mb} for size, mb in held.items()],
    }


def _fill(
    options: dict[str, Any], database: str, given: Environment, report: Report
) -> tuple[Histories, list[Figures]]:
    """Everybody, in stages; at the end the first people are asked the same questions in the database of each."""
    turns, is_plotted = options["turns"], bool(options["plots"])
    stages: tuple[float, ...] = PLOTTED_STAGES if is_plotted else STAGES
    if is_cluster(connection):
        # Of a database on a cluster there is no copy to compare with.
        stages = (1.0,)
    histories: Histories = {}
    people: list[User] = []
    asked: list[AskedQuestions] = []
    earlier: list[tuple[int, Copy]] = []
    with ExitStack() as copies:
        with made_pool(turns, given=given, report=report) as pool:
            for size in sorted({turns // part for part in SHORTER if is_plotted} - {0}):
                histories[size] = pool.load([size] * SHORTER_PEOPLE)
            for share in stages:
                if (missing := max(1, round(share * options["users"])) - len(people)) > 0:
                    if people:
                        earlier.append((_rows(), copies.enter_context(copied(database))))
                    people += pool.load([turns] * missing)
                    asked = asked or ask(people[:MOST_ASKED], count=options["queries"])
        return {**histories, turns: people}, _ask_first(asked, earlier, report)


def _ask_first(asked: Sequence[AskedQuestions], earlier: Sequence[tuple[int, Copy]], report: Report) -> list[Figures]:
    """The first people's timings when the table had so many vectors, of everybody together.

    In turns: the machine may be twice as quick by the time that everybody is loaded.
    """
    rows = [*(rows for rows, _ in earlier), _rows()]
    report(f"Asking the first {len(asked)} people among {' and '.join(f'{one:,}' for one in rows)} vectors.")
    timings = {
        name: timed(asked, *(partial(_asked_of, copy, search) for _, copy in earlier), search)
        for name, search in OURS.items()
    }
    return [
        {"rows": one, "results": {name: each[stage].figures for name, each in timings.items()}}
        for stage, one in enumerate(rows)
    ]


def _asked_of(copy: Copy, search: Search, user: User, question: Question) -> object:
    with copy.standing_in():
        return search(user, question)


def _rows() -> int:
    with as_worker():
        return Embedding.objects.exclude(vector=None).count()
