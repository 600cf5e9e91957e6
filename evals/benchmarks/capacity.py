"""`benchmark capacity`: how many bytes a turn takes in each table, its indexes and compressed values counted too.

1. Synthetic turns are saved by the service that the chat uses, some at a time.
2. Each time, the worker's code makes their vectors and flushes their terms, and the tables are vacuumed, as autovacuum
   does sooner or later: the next rows take the room of those that waited in queues.
3. Each table's growth since the database was empty is divided by the number of turns.
4. The processor's time, the application's and the database's, is taken of embedding, of both saves of a turn as the
   chat makes them, and of hybrid searches among histories of average length.

From that, what populations of several sizes take (`population`). And the cost of meaning by the length of a text: bytes
of vectors, and the processor's milliseconds.
"""

import time
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import psutil
from django.db import connection

from evals import synthetic
from evals.benchmarks.base import Benchmark, Figures, TableRows
from evals.benchmarks.indexing import saving_turns
from evals.benchmarks.population import NodeSize, Population, ProcessorTime, TurnCosts, breaks_first, needs
from evals.benchmarks.saving import begin_conversation, save_answer, save_message
from evals.benchmarks.search.asking import ask, search_hybrid
from evals.benchmarks.search.histories import made_pool
from evals.datasets.loading import Report
from evals.options import Number
from evals.processes import environment
from evals.scratch import as_worker, scratch_database, unbound
from intake.models import Turn, User
from memory import index
from memory.backends.embedders import get_embedder
from memory.index import segments
from memory.models import Embedding

TURNS_AT_A_TIME = 50
PEOPLE = (10**4, 10**5, 10**6, 10**7)
SEARCHED_PEOPLE = 2
WARM_UP = 20
WITHOUT_DECIMALS = 100

_SIZES = """
SELECT relname, pg_total_relation_size(oid)
  FROM pg_class
 WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


class ProcessorClock:
    """The processor's time of this process, and of the one in which PostgreSQL serves its connection.

    Adds up what the blocks within `running()` took; waiting does not count. The operating system counts the database's
    process in hundredths of a second, so measure many blocks.
    """

    def __init__(self) -> None:
        self._process = self._database = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """The block must keep to the connection with which it begins."""
        connection.ensure_connection()
        database = psutil.Process(connection.connection.info.backend_pid)
        process_before, database_before = time.process_time(), database.cpu_times()
        yield
        self._process += time.process_time() - process_before
        times = database.cpu_times()
        self._database += times.user + times.system - database_before.user - database_before.system

    def per_operation(self, count: int) -> ProcessorTime:
        return ProcessorTime(process=1000 * self._process / count, database=1000 * self._database / count)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--people", type=people_counts, default=PEOPLE, metavar="N[,N…]", help="default 10^4 to 10^7")


def people_counts(written: str) -> list[float]:
    return [Number(1, "").read(each) for each in written.split(",")]


def run(options: dict[str, Any], report: Report) -> Figures:
    """`embedding_ms…`: what a worker did, waiting not counted, from a pending row to its stored vector."""
    count = options["turns"]
    with scratch_database() as database:
        empty = _sizes()
        get_embedder().warm_up(for_documents=True)
        turns: list[Turn] = []
        clock = ProcessorClock()
        saving = saving_turns(count, seed=0, answer_length=options["answer"] or None)
        while some := list(islice(saving, TURNS_AT_A_TIME)):
            turns += some
            _index(clock)
            report(f"{len(turns):,} turns are saved and indexed.")
        with as_worker():
            passages = Embedding.objects.count()
        grown = {table: (size - empty[table]) / count for table, size in _sizes().items()}
        embedding = clock.per_operation(count)
        populations = _populations(options, grown, embedding, database, report) if options["samples"] else {}
    text = sum(len((turn.user_message + turn.assistant_message).encode()) for turn in turns)
    thousands = sum(len(turn.user_message + turn.assistant_message) for turn in turns) / 1_000
    vectors = grown["embeddings"] * count
    by_table = {table: round(size) for table, size in sorted(grown.items(), key=lambda item: -item[1]) if size > 0}
    return {
        "turns": count,
        "text_bytes_per_turn": round(text / count),
        "passages_per_turn": round(passages / count, 2),
        "embedding_ms_per_turn": round(embedding.process, 1),
        "embedding_ms_per_1000_characters": round(embedding.process * count / thousands, 1),
        "vector_bytes_per_1000_characters": round(vectors / thousands),
        "embedding_database_ms_per_turn": round(embedding.database, 2),
        "bytes_per_turn": round(sum(grown.values())),
        "bytes_per_turn_by_table": by_table,
        **populations,
    }


def _populations(
    options: dict[str, Any], grown: dict[str, float], embedding: ProcessorTime, database: str, report: Report
) -> Figures:
    population = Population(**{name: options[name] for name in Population.__dataclass_fields__})
    node = NodeSize(cores=options["node_cores"], memory_gb=options["node_memory"], disk_gb=options["node_disk"])
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_size('idx_embeddings_bits')")
        # A search scans these; of the tables it reads the rows of its candidates.
        hot = cursor.fetchone()[0] / options["turns"] + grown["term_blocks"] + grown["term_segments"]
    save = _save(options["samples"])
    search = _search(max(1, round(population.history)), options["samples"], database, report)
    costs = TurnCosts(sum(grown.values()), hot, search=search, save=save, embedding=embedding)
    needed = [needs(people, population, costs, node) for people in options["people"]]
    return {
        "save_ms": round(save.process, 2),
        "save_database_ms": round(save.database, 2),
        "searched_history": round(population.history),
        "search_ms": round(search.process, 2),
        "search_database_ms": round(search.database, 2),
        "hot_bytes_per_turn": round(hot),
        "populations": needed,
        "assumptions": population.assumptions(node),
        "breaks_first": [breaks_first(each) for each in needed],
    }


def _save(count: int) -> ProcessorTime:
    """Of both saves of a turn."""
    chat = begin_conversation(User.objects.create_user("saving@evals.invalid"))
    # All made up beforehand: that takes as long as a save.
    turns = list(synthetic.turns(WARM_UP + count, seed=1))
    for said in turns[:WARM_UP]:
        save_answer(save_message(chat, said), said)
    clock = ProcessorClock()
    with clock.running():
        for said in turns[WARM_UP:]:
            save_answer(save_message(chat, said), said)
    return clock.per_operation(count)


def _search(history: int, count: int, database: str, report: Report) -> ProcessorTime:
    """Of a hybrid search of a person who has so many turns, its query embedded by the model in force."""
    given = environment(database=database, broker="")
    with made_pool(history, given=given, report=report) as pool:
        users = pool.load([history] * SEARCHED_PEOPLE)
    clock, searches = ProcessorClock(), 0
    for asked in ask(users, count=count):
        for question in asked.warm_up:
            search_hybrid(asked.user, question)
        with clock.running():
            for question in asked.questions:
                search_hybrid(asked.user, question)
        searches += len(asked.questions)
    return clock.per_operation(searches)


def _index(clock: ProcessorClock) -> None:
    """The clock runs while vectors are made and stored."""
    with as_worker():
        with clock.running():
            index.embed_pending()
        segments.flush()
    with unbound(), connection.cursor() as cursor:
        cursor.execute("VACUUM")


def _sizes() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(_SIZES)
        return dict(cursor.fetchall())


def table(figures: Figures) -> TableRows:
    """The measured figures, then a column for each population."""
    rows = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    measured = [[name, f"{value:,}"] for name, value in {**rows, **figures["bytes_per_turn_by_table"]}.items()]
    if not (populations := figures.get("populations")):
        return measured

    def shown(value: float) -> str:
        return f"{value:,.0f}" if value == int(value) or value > WITHOUT_DECIMALS else f"{value:,.3g}"

    needed = [[name, *(shown(each[name]) for each in populations)] for name in populations[0]]
    return [[*row, *[""] * (len(populations) - 1)] for row in measured] + [[""] * (len(populations) + 1)] + needed


def words(figures: Figures) -> Sequence[str]:
    if not (assumptions := figures.get("assumptions")):
        return ()
    return ["Assumptions:", *assumptions, "What breaks first:", *figures["breaks_first"]]


BENCHMARK = Benchmark(
    "capacity",
    "bytes per turn by table, the processor's time, and what they make of so many people",
    run,
    {
        "turns": Number(1000, "how many are saved and indexed"),
        "answer": Number(0, "characters of every answer; 0: of usual lengths", may_be_zero=True),
        "samples": Number(100, "searches and saves that are timed; 0: sizes alone", may_be_zero=True),
        "active": Number(0.2, "share of the people who come on a day", most=1),
        "turns_a_day": Number(10.0, "of those who come, on average"),
        "searches_a_day": Number(10.0, "of those who come", may_be_zero=True),
        "zipf": Number(0.5, "exponent of how much each says", may_be_zero=True),
        "years": Number(2.0, "for which turns are kept"),
        "node_cores": Number(16.0, "of a node of the database"),
        "node_memory": Number(128.0, "of a node, GB"),
        "node_disk": Number(2000.0, "of a node, GB"),
    },
    add_arguments=add_arguments,
    table=table,
    words=words,
)
