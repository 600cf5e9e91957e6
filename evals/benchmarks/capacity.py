"""`benchmark capacity`: how many bytes a turn takes in each table, its indexes and compressed values counted too.

1. Synthetic turns are saved by the service that the chat uses, some at a time.
2. Each time, the worker's code makes their vectors and flushes their terms, and the tables are vacuumed, as autovacuum
   does sooner or later: the next rows take the room of those that waited in queues.
3. Each table's growth since the database was empty is divided by the number of turns.

And the cost of meaning by the length of a text: bytes of vectors, and the processor's milliseconds.
"""

import time
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from itertools import islice

from django.core.management import CommandError
from django.db import connection

from evals.benchmarks.base import Benchmark, Figures, TableRows
from evals.benchmarks.indexing import saving_turns
from evals.datasets.loading import Report
from evals.scratch import as_worker, scratch_database, unbound
from intake.models import Turn
from memory import indexing, term_segments
from memory.embedders import get_embedder
from memory.models import Embedding

TURNS_AT_A_TIME = 50
VECTOR_TABLES = ("embeddings", "embedding_blocks")

_SIZES = """
SELECT relname, pg_total_relation_size(oid)
  FROM pg_class
 WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--turns", type=int, default=1000, help="how many are saved and indexed (default 1000)")
    parser.add_argument(
        "--answer", type=int, default=0, metavar="CHARACTERS", help="of every answer (default: of usual lengths)"
    )


def run(options: Mapping[str, int], report: Report) -> Figures:
    """`embedding_ms…`: what the processor did, waiting not counted, from a pending row to its vector in a block."""
    count = options["turns"]
    if count < 1:
        raise CommandError("--turns must be at least 1.")
    with scratch_database():
        empty = _sizes()
        get_embedder().warm_up(for_documents=True)
        turns: list[Turn] = []
        seconds = 0.0
        for some in _batched(saving_turns(count, seed=0, answer_length=options["answer"] or None)):
            turns += some
            seconds += _index()
            report(f"{len(turns):,} turns are saved and indexed.")
        with as_worker():
            passages = Embedding.objects.count()
        grown = {table: (size - empty[table]) / count for table, size in _sizes().items()}
    text = sum(len((turn.user_message + turn.assistant_message).encode()) for turn in turns)
    thousands = sum(len(turn.user_message + turn.assistant_message) for turn in turns) / 1_000
    vectors = sum(grown[table] for table in VECTOR_TABLES) * count
    by_table = {table: round(size) for table, size in sorted(grown.items(), key=lambda item: -item[1]) if size > 0}
    return {
        "turns": count,
        "text_bytes_per_turn": round(text / count),
        "passages_per_turn": round(passages / count, 2),
        "embedding_ms_per_turn": round(1_000 * seconds / count, 1),
        "embedding_ms_per_1000_characters": round(1_000 * seconds / thousands, 1),
        "vector_bytes_per_1000_characters": round(vectors / thousands),
        "bytes_per_turn": round(sum(grown.values())),
        "bytes_per_turn_by_table": by_table,
    }


def _batched(turns: Iterator[Turn]) -> Iterator[list[Turn]]:
    while some := list(islice(turns, TURNS_AT_A_TIME)):
        yield some


def _index() -> float:
    """Returns the seconds of the processor that the vectors took."""
    with as_worker():
        begun = time.process_time()
        indexing.embed_pending()
        seconds = time.process_time() - begun
        term_segments.flush()
    with unbound(), connection.cursor() as cursor:
        cursor.execute("VACUUM")
    return seconds


def table(figures: Figures) -> TableRows:
    rows = {name: value for name, value in figures.items() if name != "bytes_per_turn_by_table"}
    return [[name, f"{value:,}"] for name, value in {**rows, **figures["bytes_per_turn_by_table"]}.items()]


def _sizes() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(_SIZES)
        return dict(cursor.fetchall())


BENCHMARK = Benchmark(
    name="capacity",
    help="bytes per turn by table, indexes included",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
