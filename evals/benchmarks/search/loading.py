"""Fills a scratch database with made-up people: their rows come from several processes, their indexes afterwards."""

import os
import time
from collections.abc import Sequence
from dataclasses import astuple
from datetime import datetime
from itertools import accumulate

from django.contrib.auth.hashers import make_password
from django.core.management.color import no_style
from django.db import connection
from django.db.models import Max

from core.isolation.acting import is_cluster
from evals.benchmarks.search.bare_tables import laid_bare
from evals.benchmarks.search.histories import SyntheticPerson
from evals.datasets.loading import Report
from evals.processes import Environment, logging_in, run_at_once
from evals.scratch import as_worker, unbound
from intake.models import Conversation, Turn, User
from memory import vectors
from memory.embedders import get_embedder
from memory.models import (
    Embedding,
    EmbeddingModel,
    IndexedText,
    PendingTerms,
    TermBlock,
    TermSegment,
    VectorBlock,
)

# Where most of the rows go; the others are quick as they are.
INDEX_TABLES = (Embedding, IndexedText, PendingTerms)


def load(sizes: Sequence[int], *, given: Environment, now: datetime, report: Report) -> list[User]:
    """A person for each of `sizes`, who said so many turns, up to `now`; more may be loaded later."""
    users = _make_users(len(sizes))
    with unbound():
        people = _number_texts(users, sizes)
    begun = time.monotonic()
    with unbound(), laid_bare(() if is_cluster(connection) else INDEX_TABLES):
        count = _save(people, given, now)
        seconds = time.monotonic() - begun
        saved = f"Saved {sum(sizes):,} turns with {count:,} vectors"
        report(f"{saved} in {seconds:.0f} s ({sum(sizes) / seconds:,.0f} turns/s); building the indexes.")
    _flush_terms(len(users), given)
    with as_worker():
        vectors.pack_all()
    with unbound():
        _settle()
    report(f"Indexed and vacuumed after {time.monotonic() - begun:.0f} s; the database has {_gigabytes():.1f} GB.")
    return users


def _make_users(count: int) -> list[User]:
    known = User.objects.count()
    # A hash for each would take longer than their histories do.
    password = make_password(None)
    return User.objects.bulk_create(
        User(email=f"person-{known + number}@evals.invalid", password=password) for number in range(count)
    )


def _number_texts(users: Sequence[User], sizes: Sequence[int]) -> list[SyntheticPerson]:
    first = (IndexedText.objects.aggregate(last=Max("pk"))["last"] or 0) + 1
    starts = accumulate(sizes, initial=first)
    return [SyntheticPerson(user.pk, size, start) for user, size, start in zip(users, sizes, starts, strict=False)]


def _save(people: Sequence[SyntheticPerson], given: Environment, now: datetime) -> int:
    """Each processor's share in a process of its own; returns how many vectors there are."""
    # Made here, so that the processes do not all make it.
    EmbeddingModel.objects.for_embedder(get_embedder())
    shares = [share for number in range(os.cpu_count() or 1) if (share := people[number :: os.cpu_count() or 1])]
    orders = [
        {
            "people": [astuple(person) for person in share],
            "pool": max(person.turns for person in share),
            "seed": share[0].user_id,
            "now": now.isoformat(),
        }
        for share in shares
    ]
    owners = logging_in(given, "DATABASE_OWNER_URL")
    return sum(done["vectors"] for done in run_at_once("evals.children.save_histories", owners, data=orders))


def _flush_terms(people: int, given: Environment) -> None:
    """By workers' processes, one for each processor, which share the people."""
    workers = logging_in(given, "DATABASE_WORKER_URL")
    run_at_once("evals.children.flush_terms", workers, data=[None] * min(people, os.cpu_count() or 1))


def _settle() -> None:
    with connection.cursor() as cursor:
        # The texts' numbers were given out here.
        for statement in connection.ops.sequence_reset_sql(no_style(), [IndexedText]):
            cursor.execute(statement)
        for table in (User, Conversation, Turn, Embedding, VectorBlock, PendingTerms, TermSegment, TermBlock):
            cursor.execute(f"VACUUM ANALYZE {connection.ops.quote_name(table._meta.db_table)}")


def _gigabytes() -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        row = cursor.fetchone()
    return float(row[0]) / 1e9 if row else 0.0
