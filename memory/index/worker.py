"""The worker's side: claims pending rows, makes their vectors, and stores each only if its text is still the same.

1. `claim` takes rows under a lease and counts the attempt before it is made, so that a row which kills its worker is
   detected.
2. A thread embeds a batch, while the next one is claimed and the last one stored.
3. A failed row is retried later; after too many failures it is quarantined, and staff see it.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from core.citus.routing import about
from core.isolation.acting import is_cluster
from memory.backends.embedders import Embedder, EmbedderError, EmbedderRefused, EmbedderSlow, Matrix, get_embedder
from memory.index import sources, vectors
from memory.index.sources import READERS, SourceKey, content_hash, key_of, passages_of
from memory.index.writer import refresh
from memory.models import Embedding, EmbeddingQuerySet

logger = logging.getLogger(__name__)


# The owners of pending rows after some user, by jumping from one to the next in an index: due or not, because only a
# scan of a user's rows tells that.
_OWNERS = """
WITH RECURSIVE model AS (
    SELECT id FROM embedding_models WHERE name = %(model)s
), owner AS (
    (SELECT user_id
       FROM embeddings
      WHERE vector IS NULL AND quarantined_at IS NULL AND model_id = (SELECT id FROM model)
        AND user_id > %(after)s
      ORDER BY user_id
      LIMIT 1)
     UNION ALL
    SELECT (SELECT user_id
              FROM embeddings
             WHERE vector IS NULL AND quarantined_at IS NULL AND model_id = (SELECT id FROM model)
               AND user_id > owner.user_id
             ORDER BY user_id
             LIMIT 1)
      FROM owner
     WHERE user_id IS NOT NULL
)
SELECT user_id FROM owner WHERE user_id IS NOT NULL LIMIT %(most)s
"""
# Round-robin: the first due row of each owner, then the second of each, and so on, however many an owner has; of one
# person's rows the newest first, so that what is said now is found before what was imported, and what is further on in
# long texts when nothing else of theirs waits: a book of an answer has hundreds of rows.
_DUE_IN_TURNS = """
SELECT user_id, id
  FROM unnest(%(owners)s::bigint[]) AS looked_at(user_id)
 CROSS JOIN LATERAL (
    SELECT id, row_number() OVER (ORDER BY is_further, said_at DESC, id) AS place
      FROM (SELECT id, is_further, said_at
              FROM embeddings
             WHERE user_id = looked_at.user_id AND vector IS NULL AND quarantined_at IS NULL
               AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
               AND next_attempt_at <= %(now)s AND attempts < %(max_attempts)s
             ORDER BY is_further, said_at DESC, id
             LIMIT %(batch)s) AS newest) AS row
 ORDER BY place, random()
 LIMIT %(batch)s
"""
# On a cluster, where no node can jump from one owner to the next: of every owner.
_DUE_ON_NODES = """
SELECT user_id, id
  FROM (SELECT user_id, id,
               row_number() OVER (PARTITION BY user_id ORDER BY is_further, said_at DESC, id) AS place
          FROM embeddings
         WHERE vector IS NULL AND quarantined_at IS NULL
           AND model_id = (SELECT id FROM embedding_models WHERE name = %(model)s)
           AND next_attempt_at <= %(now)s AND attempts < %(max_attempts)s) AS row
 WHERE place <= %(batch)s
 ORDER BY place, random()
 LIMIT %(batch)s
"""
# The number of users whose rows are considered for one batch; more take turns.
MOST_OWNERS = 500

# Claimed rows, each with the text of its passage.
Batch = dict[Embedding, str]


def embed_pending(*, until: datetime | None = None) -> int:
    """Fill the vectors that wait, until none does or the time is up. Returns how many it filled.

    The model computes in a thread beside this one, which meanwhile stores the last batch and prepares the next, so that
    the cores never wait for the database. Nothing is claimed ahead while a row is tried that failed before: if it
    brings the worker down, what was claimed beside it would be blamed and delayed with it, time after time.
    """
    embedder = get_embedder()
    total = 0
    with ThreadPoolExecutor(1, thread_name_prefix="embedding") as beside:
        batch = _next_batch(embedder)
        made = beside.submit(_embed, batch, embedder)
        while batch:
            is_time_up = until is not None and timezone.now() >= until
            # The attempts are those before the present one was counted.
            is_suspect = any(row.attempts for row in batch)
            upcoming = {} if is_time_up or is_suspect else _next_batch(embedder)
            outcome = made.result()
            hold(upcoming, now=timezone.now())
            made = beside.submit(_embed, upcoming, embedder)
            total += _settle(batch, outcome, embedder)
            if not upcoming and not is_time_up:
                # A row that just failed may be due again already.
                upcoming = _next_batch(embedder)
                made = beside.submit(_embed, upcoming, embedder)
            batch = upcoming
    return total


class Batches:
    """How many texts go into one batch: as many as the model embeds in its `batch_seconds`, at its seen speed.

    A model that does not answer in time gets half as many; one text is always tried.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        # By the model's name: texts a second, and the most after a time-out.
        self._speeds: dict[str, float] = {}
        self._most: dict[str, int] = {}

    def size(self, embedder: Embedder) -> int:
        with self._lock:
            speed, most = self._speeds.get(embedder.name), self._most.get(embedder.name)
        sizes: list[int] = [settings.EMBEDDING_BATCH_SIZE] if most is None else [settings.EMBEDDING_BATCH_SIZE, most]
        if speed is not None:
            sizes.append(int(speed * embedder.batch_seconds))
        return max(1, min(sizes))

    def took(self, embedder: Embedder, texts: int, seconds: float) -> None:
        with self._lock:
            speed = texts / max(seconds, 1e-6)
            before = self._speeds.get(embedder.name, speed)
            # Half of it is the last batch, so that a model that recovers has its full batches back in some of them.
            self._speeds[embedder.name] = (before + speed) / 2
            if (most := self._most.get(embedder.name)) is not None:
                self._most[embedder.name] = min(2 * most, settings.EMBEDDING_BATCH_SIZE)

    def were_too_slow(self, embedder: Embedder, texts: int) -> None:
        with self._lock:
            self._most[embedder.name] = max(1, texts // 2)


batches = Batches()


def fill(rows: Sequence[Embedding], *, embedder: Embedder) -> int:
    """Make the vectors of claimed rows and store them. Returns how many it stored."""
    batch = _with_texts(rows, embedder)
    return _settle(batch, _embed(batch, embedder), embedder)


def _next_batch(embedder: Embedder) -> Batch:
    """Claimed rows with their texts; empty if nothing is due."""
    while rows := claim(embedder=embedder, now=timezone.now()):
        if batch := _with_texts(rows, embedder):
            return batch
    return {}


def _embed(batch: Batch, embedder: Embedder) -> Matrix | Exception:
    """Runs in a thread without a database: returns the vectors in the batch's order, or the error."""
    began = time.monotonic()
    try:
        made = embedder.embed_documents(list(batch.values()))
        if batch:
            batches.took(embedder, len(batch), time.monotonic() - began)
        return made
    except EmbedderSlow as error:
        batches.were_too_slow(embedder, len(batch))
        return error
    except Exception as error:  # a text the model cannot take must not stop the others
        return error


def _settle(batch: Batch, made: Matrix | Exception, embedder: Embedder) -> int:
    rows = list(batch)
    match made:
        case EmbedderRefused():
            count_failure(rows, made, now=timezone.now())
        case EmbedderError():
            postpone(rows, made, now=timezone.now())
        case Exception():
            logger.error("Embedding failed for rows %s", [row.pk for row in rows], exc_info=made)
            count_failure(rows, made, now=timezone.now())
        case _:
            vectors.store(rows, made, model=embedder.name, now=timezone.now())
            return len(rows)
    return 0


def _with_texts(rows: Sequence[Embedding], embedder: Embedder) -> Batch:
    """The rows with their passages' texts. Rows of deleted texts are removed; rows of changed texts are made again."""
    by_key: dict[SourceKey, list[Embedding]] = defaultdict(list)
    for row in rows:
        by_key[key_of(row)].append(row)
    batch: Batch = {}
    for text in sources.load(by_key):
        of_text = by_key.pop(text.key)
        # Each row stores its passage's position, so that a long text is not cut again for each of its many batches.
        passages = zip(of_text, passages_of(text, (row.span for row in of_text), embedder), strict=True)
        rules = READERS[text.key.corpus].cutting_rules
        current = {
            row: passage
            for row, passage in passages
            if row.cutting_rules == rules and bytes(row.content_hash) == content_hash(passage)
        }
        if len(current) < len(of_text):
            try:
                with about(text.key.user_id):
                    refresh(text.key, embedder=embedder, now=timezone.now())
            except Exception as error:  # a text that cannot be indexed must not stop the others
                logger.error("The text of rows %s cannot be indexed", [row.pk for row in of_text], exc_info=error)
                count_failure([row for row in of_text if row not in current], error, now=timezone.now())
        batch |= current
    gone = [(row.user_id, row.pk) for of_text in by_key.values() for row in of_text]
    for some in _by_node(Embedding.objects.all(), gone) if gone else ():
        some.delete()
    return batch


def has_pending(*, now: datetime) -> bool:
    return Embedding.objects.due(now).of_model(get_embedder().name).exists()


def claim(*, embedder: Embedder, now: datetime) -> list[Embedding]:
    """Claim due rows for the length of a lease, skipping rows that another worker holds.

    A row that has failed before is claimed alone: if it kills its worker, no other rows are affected.
    """
    for _ in range(5):
        due = _due_in_turns(embedder, now=now)
        with transaction.atomic():
            waiting = Embedding.objects.due(now).defer("vector")
            rows = [row for some in _by_node(waiting, due) for row in some.select_for_update(skip_locked=True)]
            rows.sort(key=lambda row: due.index((row.user_id, row.pk)))
            if rows and rows[0].attempts:
                rows = rows[:1]
            rows = [row for row in rows if not row.attempts] or rows
            _update(rows, attempts=F("attempts") + 1, next_attempt_at=now + _lease())
        for row in rows:
            row.next_attempt_at = now + _lease()
        if rows or not due:
            return rows
        # Another worker has just claimed these, and is about to commit.
    return []


def _by_node(rows: EmbeddingQuerySet, keys: Iterable[tuple[int, int]]) -> Iterator[EmbeddingQuerySet]:
    """Those of these (user, id) that are among `rows`: one query, or on a cluster one per user, whose rows are on one
    node.
    """
    if not is_cluster(connection):
        yield rows.filter(pk__in=[pk for _, pk in keys])
        return
    owners: dict[int, list[int]] = defaultdict(list)
    for user_id, pk in keys:
        owners[user_id].append(pk)
    # In a fixed order, so that two workers do not block each other.
    for user_id, ids in sorted(owners.items()):
        yield rows.filter(user_id=user_id, pk__in=ids)


def _update(rows: Iterable[Embedding], **changes: Any) -> None:
    for some in _by_node(Embedding.objects.all(), [(row.user_id, row.pk) for row in rows]):
        some.update(**changes)


def _due_in_turns(embedder: Embedder, *, now: datetime) -> list[tuple[int, int]]:
    """The next batch of due rows. More owners than are looked at take turns: the next batch begins after the last of
    them, and owners without a due row cost no batch.
    """
    parameters: dict[str, Any] = {
        "model": embedder.name,
        "now": now,
        "max_attempts": settings.EMBEDDING_MAX_ATTEMPTS,
        "batch": batches.size(embedder),
    }
    with connection.cursor() as cursor:
        if is_cluster(connection):
            cursor.execute(_DUE_ON_NODES, parameters)
            return list(cursor.fetchall())
        for owners in _rotation.owners(cursor, parameters):
            cursor.execute(_DUE_IN_TURNS, parameters | {"owners": owners})
            if due := cursor.fetchall():
                return list(due)
    return []


class _Rotation:
    """The user after whom this process's next batch begins. Other workers begin elsewhere, which harms nothing."""

    def __init__(self) -> None:
        self._after = 0

    def owners(self, cursor: Any, parameters: dict[str, Any]) -> Iterator[list[int]]:
        """Once around all owners of pending rows, at most `MOST_OWNERS` at a time."""
        began_after, has_wrapped = self._after, self._after == 0
        while True:
            cursor.execute(_OWNERS, parameters | {"after": self._after, "most": MOST_OWNERS})
            owners = [user_id for (user_id,) in cursor.fetchall()]
            is_last = len(owners) < MOST_OWNERS
            self._after = 0 if is_last else owners[-1]
            if owners:
                yield owners
            if has_wrapped and (is_last or self._after >= began_after > 0):
                return
            has_wrapped = has_wrapped or is_last


_rotation = _Rotation()


def hold(rows: Collection[Embedding], *, now: datetime) -> None:
    """Renew the lease of rows that were claimed ahead, because they were not worked on while they waited.

    Not while most of it is left, because this writes each row again.
    """
    # With two thirds of its lease left, a batch is as good as new: it takes a second or two.
    if any(row.next_attempt_at < now + (2 / 3) * _lease() for row in rows):
        for some in _by_node(Embedding.objects.filter(vector=None), [(row.user_id, row.pk) for row in rows]):
            some.update(next_attempt_at=now + _lease())


def quarantine_exhausted(*, now: datetime) -> int:
    """Quarantine rows with too many attempts: rows whose worker died each time are found only here."""
    exhausted = Embedding.objects.waiting().filter(
        next_attempt_at__lte=now, attempts__gte=settings.EMBEDDING_MAX_ATTEMPTS
    )
    return exhausted.update(quarantined_at=now)


def postpone(rows: Sequence[Embedding], error: Exception, *, now: datetime) -> None:
    """The model is unavailable: no attempt is counted, however long this lasts."""
    logger.warning("The embedding model is away: %s", error)
    later = now + timedelta(seconds=5)
    _update(rows, attempts=F("attempts") - 1, last_error=_describe(error), next_attempt_at=later)


def count_failure(rows: Sequence[Embedding], error: Exception, *, now: datetime) -> None:
    """Retry each row separately and soon. A row that fails alone waits longer each time and is finally quarantined."""
    alone = len(rows) == 1
    for row in rows:
        attempts = row.attempts + 1
        wait = min(timedelta(seconds=2**attempts), timedelta(minutes=10)) if alone else timedelta()
        is_last = attempts >= settings.EMBEDDING_MAX_ATTEMPTS
        Embedding.objects.filter(user_id=row.user_id, pk=row.pk).update(
            last_error=_describe(error),
            next_attempt_at=now + wait,
            quarantined_at=now if is_last else None,
        )


def _lease() -> timedelta:
    return timedelta(seconds=settings.EMBEDDING_LEASE_SECONDS)


def _describe(error: Exception) -> str:
    """The kind of failure, for staff; never its message, which may quote a user's text."""
    return str(error)[:200] if isinstance(error, EmbedderError) else type(error).__name__
