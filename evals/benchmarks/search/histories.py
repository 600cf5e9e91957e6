"""Fills a scratch database with made-up people: one history is saved and embedded, and all rows are copies of its.

1. A pool of turns is saved, cut and embedded by the product's own code: that takes far longer than storing rows does.
2. Each person gets copies of its rows, the turns in an order, in conversations and at times of their own.
3. Workers' code flushes their terms, and the tables are vacuumed.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.contrib.auth.hashers import make_password
from django.db import connection, models, transaction
from django.utils import timezone

from core.ids import uuid7
from evals import synthetic
from evals.benchmarks.search.meaning import synthetic_meaning
from evals.datasets.loading import Report, embed_all, load_turns
from evals.datasets.reading import TurnRow
from evals.processes import Environment, call_at_once, logging_in
from evals.scratch import unbound
from intake.chats.services import title_from
from intake.models import Conversation, Turn, User
from memory.index import segments
from memory.models import Embedding, IndexedText, PendingTerms, TermBlock, TermSegment

CONVERSATION_TURNS = 20
BETWEEN_TURNS = timedelta(minutes=50)

# The tables that are copied: how a row of each is known by its turn.
_TURN_OF = {
    Turn: "(old.conversation_id, old.turn_number) = (place.old_source, place.old_number)",
    IndexedText: "old.id = place.old_text",
    PendingTerms: "old.text_id = place.old_text",
    Embedding: "(old.source_id, old.chunk_index) = (place.old_source, place.old_number)",
}
# The columns that change in a copy.
_CHANGED = {
    "user_id": "%(user)s",
    "conversation_id": "place.source",
    "source_id": "place.source",
    "turn_number": "place.number",
    "chunk_index": "place.number",
    "parent_number": "nullif(place.number - 1, 0)",
    "text_id": "place.text",
    "said_at": "place.said_at",
    "created_at": "place.said_at",
    "updated_at": "place.said_at",
}
_COPY = """
INSERT INTO {table} ({columns})
SELECT {values}
  FROM unnest(%(old_sources)s::uuid[], %(old_numbers)s::integer[], %(old_texts)s::bigint[],
              %(sources)s::uuid[], %(numbers)s::integer[], %(texts)s::bigint[], %(said_at)s::timestamptz[])
       AS place (old_source, old_number, old_text, source, number, text, said_at)
  JOIN pool_of_{table} AS old ON {turn_of}
"""
_SET_ASIDE = (
    "CREATE TABLE pool_of_{table} AS TABLE {table} WITH NO DATA",
    "INSERT INTO pool_of_{table} SELECT * FROM {table} WHERE user_id = %(user)s",
)
TABLES = (User, Conversation, Turn, IndexedText, Embedding, PendingTerms, TermSegment, TermBlock)


class Pool:
    """So many turns, in tables beside the product's own: `pool_of_…`; everybody's end shortly before it was made."""

    def __init__(self, size: int, *, given: Environment, report: Report) -> None:
        self._given, self._report, self._until = given, report, timezone.now()
        user = load_turns(self._rows(size), report=report).users["pool"]
        with connection.cursor() as cursor:
            # Before a worker's flush takes the pending terms away.
            self._set_aside(cursor, PendingTerms, user)
            with synthetic_meaning():
                embed_all(report=report)
            for table in (Turn, IndexedText, Embedding):
                self._set_aside(cursor, table, user)
        places = IndexedText.objects.for_user(user).values_list("source_id", "chunk_index", "pk")
        self._places = list(places.order_by("said_at"))
        turns = Turn.objects.for_user(user).order_by("said_at")
        self._messages = list(turns.values_list("user_message", flat=True))
        user.delete()

    def load(self, sizes: Sequence[int]) -> list[User]:
        """A person for each of `sizes`, who said so many turns of the pool; more may be loaded later."""
        known = User.objects.count()
        # A hash for each would take longer than their histories do.
        password = make_password(None)
        users = User.objects.bulk_create(
            User(email=f"somebody-{known + number}@evals.invalid", password=password) for number in range(len(sizes))
        )
        begun = time.monotonic()
        with unbound():
            for user, size in zip(users, sizes, strict=True):
                with transaction.atomic():
                    self.copy(user, size)
        self._report(f"Saved {sum(sizes):,} turns in {time.monotonic() - begun:.0f} s; flushing.")
        # By workers' processes, one for each processor, which share the people.
        workers = min(len(users), os.cpu_count() or 1)
        call_at_once(segments.flush, logging_in(self._given, "DATABASE_WORKER_URL"), [{}] * workers)
        with unbound(), connection.cursor() as cursor:
            # An index-only scan needs pages that are marked all-visible; the planner needs to know how many rows there
            # are.
            for table in TABLES:
                cursor.execute(f"VACUUM ANALYZE {connection.ops.quote_name(table._meta.db_table)}")
            cursor.execute("SELECT pg_database_size(current_database()) / 1e9")
            (gigabytes,) = cursor.fetchone()
        seconds = time.monotonic() - begun
        self._report(f"Indexed and vacuumed after {seconds:.0f} s; the database has {gigabytes:.1f} GB.")
        return users

    def copy(self, user: User, turns: int) -> None:
        """Give somebody so many of the turns."""
        chosen = np.random.default_rng(user.pk).permutation(len(self._places))[:turns]
        times = [self._until - (turns - number) * BETWEEN_TURNS for number in range(turns)]
        conversations = list(_conversations(user, [self._messages[place] for place in chosen], times))
        Conversation.objects.bulk_create(conversations)
        old_sources, old_numbers, old_texts = zip(*(self._places[place] for place in chosen), strict=True)
        with connection.cursor() as cursor:
            parameters: dict[str, Any] = {
                "user": user.pk,
                "old_sources": list(old_sources),
                "old_numbers": list(old_numbers),
                "old_texts": list(old_texts),
                "sources": [conversations[number // CONVERSATION_TURNS].pk for number in range(turns)],
                "numbers": [number % CONVERSATION_TURNS + 1 for number in range(turns)],
                "texts": _new_numbers(cursor, IndexedText, turns),
                "said_at": times,
            }
            for table in _TURN_OF:
                cursor.execute(_copy_statement(table), parameters)

    def drop(self) -> None:
        with connection.cursor() as cursor:
            for table in _TURN_OF:
                cursor.execute(f"DROP TABLE pool_of_{table._meta.db_table}")

    def _rows(self, size: int) -> Iterator[TurnRow]:
        for number, turn in enumerate(synthetic.turns(size, seed=1)):
            yield TurnRow(
                user="pool",
                conversation=str(number // CONVERSATION_TURNS),
                turn=number % CONVERSATION_TURNS + 1,
                at=self._until - (size - number) * BETWEEN_TURNS,
                user_message=turn.user_message,
                assistant_message=turn.assistant_message,
            )

    @staticmethod
    def _set_aside(cursor: Any, table: type[models.Model], user: User) -> None:
        for statement in _SET_ASIDE:
            cursor.execute(statement.format(table=table._meta.db_table), {"user": user.pk})


def _conversations(user: User, messages: list[str], times: list[datetime]) -> Iterator[Conversation]:
    for start in range(0, len(messages), CONVERSATION_TURNS):
        said_at = times[start : start + CONVERSATION_TURNS]
        yield Conversation(
            id=uuid7(),
            user=user,
            title=title_from(messages[start]),
            turn_count=len(said_at),
            current_number=len(said_at),
            started_at=said_at[0],
            last_active_at=said_at[-1],
        )


def _new_numbers(cursor: Any, table: type[models.Model], count: int) -> list[int]:
    cursor.execute(
        "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)", [table._meta.db_table, count]
    )
    return [number for (number,) in cursor.fetchall()]


def _copy_statement(table: type[models.Model]) -> str:
    columns = [str(field.column) for field in table._meta.concrete_fields if not field.generated]
    changed = dict(_CHANGED)
    if table is IndexedText:
        changed["id"] = "place.text"
    # The database numbers the other rows.
    values = {name: changed.get(name, f"old.{name}") for name in columns if name in changed or name != "id"}
    return _COPY.format(
        table=table._meta.db_table,
        columns=", ".join(f'"{name}"' for name in values),
        values=", ".join(values.values()),
        turn_of=_TURN_OF[table],
    )


@contextmanager
def made_pool(size: int, *, given: Environment, report: Report) -> Iterator[Pool]:
    """The turns of which `Pool.load` gives everybody some; gone after the block. `given`: for workers' processes."""
    with unbound():
        pool = Pool(size, given=given, report=report)
    yield pool
    with unbound():
        pool.drop()
