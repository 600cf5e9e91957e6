"""Fills a scratch database with made-up people."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from django.contrib.auth.hashers import make_password
from django.db import connection, transaction

from evals.benchmarks.search.histories import Pool
from evals.datasets.loading import Report
from evals.processes import Environment, call_at_once, logging_in
from evals.scratch import as_worker, unbound
from intake.models import Conversation, Turn, User
from memory import term_segments, vectors
from memory.models import Embedding, IndexedText, PendingTerms, TermBlock, TermSegment, VectorBlock

TABLES = (User, Conversation, Turn, IndexedText, Embedding, VectorBlock, PendingTerms, TermSegment, TermBlock)


@contextmanager
def made_pool(size: int, *, now: datetime, report: Report) -> Iterator[Pool]:
    """The turns of which `load` gives everybody some; gone after the block."""
    with unbound():
        pool = Pool(size, seed=1, now=now, report=report)
    yield pool
    with unbound():
        pool.drop()


def load(pool: Pool, sizes: Sequence[int], *, given: Environment, now: datetime, report: Report) -> list[User]:
    """A person for each of `sizes`, who said so many turns of the pool, up to `now`; more may be loaded later."""
    users = _make_users(len(sizes))
    begun = time.monotonic()
    with unbound():
        for user, size in zip(users, sizes, strict=True):
            with transaction.atomic():
                pool.copy(user, size, until=now)
    report(f"Saved {sum(sizes):,} turns in {time.monotonic() - begun:.0f} s; flushing terms and packing vectors.")
    _flush_terms(len(users), given)
    with as_worker():
        vectors.pack_all()
    with unbound(), connection.cursor() as cursor:
        # An index-only scan needs pages that are marked all-visible; the planner needs to know how many rows there are.
        for table in TABLES:
            cursor.execute(f"VACUUM ANALYZE {connection.ops.quote_name(table._meta.db_table)}")
    report(f"Indexed and vacuumed after {time.monotonic() - begun:.0f} s; the database has {_gigabytes():.1f} GB.")
    return users


def _make_users(count: int) -> list[User]:
    known = User.objects.count()
    # A hash for each would take longer than their histories do.
    password = make_password(None)
    return User.objects.bulk_create(
        User(email=f"somebody-{known + number}@evals.invalid", password=password) for number in range(count)
    )


def _flush_terms(people: int, given: Environment) -> None:
    """By workers' processes, one for each processor, which share the people."""
    workers = logging_in(given, "DATABASE_WORKER_URL")
    call_at_once(term_segments.flush, workers, [{}] * min(people, os.cpu_count() or 1))


def _gigabytes() -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        row = cursor.fetchone()
    return float(row[0]) / 1e9 if row else 0.0
