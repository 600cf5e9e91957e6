"""From a saved text to its words and vectors: pending rows are the queue, and each step may be repeated or cut short.

1. `enqueue` writes the words, and a pending row per part, in the transaction that saves the text.
2. `claim` takes rows for a while, counting the attempt before it is made, so that a row that kills its worker is found.
3. `embed_pending` makes the vectors, batch by batch, and stores each only if its text is still the same.
4. What fails is tried again later; what failed too often is quarantined, and staff see it.
"""

import logging
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone
from pgvector import HalfVector

from intake.models import Turn
from memory import nudging, sources, words
from memory.embedders import Embedder, EmbedderError, EmbedderRefused, get_embedder
from memory.embedders.base import Matrix
from memory.models import Corpus, Embedding, EmbeddingModel, IndexedText
from memory.sources import Source, SourceKey, Text, content_hash

logger = logging.getLogger(__name__)

BACKOFF_LIMIT = timedelta(minutes=10)

# Claimed rows, each with the text of its part.
Batch = dict[Embedding, str]


@dataclass(frozen=True, slots=True)
class Filled:
    """What one pass over the pending rows did."""

    embedded: int = 0
    failed: int = 0

    def __add__(self, other: "Filled") -> "Filled":
        return Filled(self.embedded + other.embedded, self.failed + other.failed)


def enqueue(source: Source, *, embedder: Embedder, now: datetime) -> bool:
    """Make the words and the rows of a source match its text; returns whether any were missing.

    Must run in the transaction that saves the text: then there is no moment at which one is kept without the other.
    """
    is_worded_anew = words.post(source.text)
    model = EmbeddingModel.objects.for_embedder(embedder)
    rows = Embedding.objects.of_source(source.user_id, source.key).filter(model=model)
    kept = dict(rows.values_list("part", "content_hash"))
    wanted = {part: content_hash(text) for part, text in enumerate(source.parts)}
    stale = [part for part, known in kept.items() if bytes(known) != wanted.get(part)]
    if stale:
        rows.filter(part__in=stale).delete()
    missing = [part for part in wanted if part not in kept or part in stale]
    Embedding.objects.bulk_create(
        [
            Embedding(
                user_id=source.user_id,
                corpus=source.key.corpus,
                source_id=source.key.source_id,
                chunk_index=source.key.chunk_index,
                part=part,
                model=model,
                length=len(source.parts[part]),
                content_hash=wanted[part],
                said_at=source.said_at,
                next_attempt_at=now,
            )
            for part in missing
        ],
        ignore_conflicts=True,
    )
    if missing:
        transaction.on_commit(nudging.nudge, robust=True)
    return is_worded_anew or bool(missing)


def forget(text: Text) -> None:
    """Remove every row of a text that is gone."""
    IndexedText.objects.of_source(text.user_id, text.key).delete()
    Embedding.objects.of_source(text.user_id, text.key).delete()


def enqueue_missing(*, now: datetime) -> int:
    """Index the ended turns whose words are missing or that the current model has no rows for; returns how many."""
    embedder = get_embedder()
    indexed = 0
    for turn in _unknown_turns(embedder).iterator(chunk_size=500):
        with transaction.atomic():
            indexed += enqueue(sources.from_turn(turn, embedder), embedder=embedder, now=now)
    return indexed


def _unknown_turns(embedder: Embedder) -> QuerySet[Turn]:
    key = {"user": OuterRef("user"), "source_id": OuterRef("conversation_id"), "chunk_index": OuterRef("turn_number")}
    embedded = Embedding.objects.in_corpus(Corpus.CHAT).of_model(embedder.name).filter(**key)
    worded = IndexedText.objects.in_corpus(Corpus.CHAT).filter(configuration=settings.TEXT_SEARCH_CONFIG, **key)
    turns = Turn.objects.filter(~Exists(embedded) | ~Exists(worded), user__isnull=False)
    return turns.exclude(status=Turn.Status.STREAMING).order_by("pk")


def embed_pending(*, until: datetime | None = None) -> Filled:
    """Fill what waits, until nothing does or the time is up.

    The model computes in a thread beside this one, which meanwhile stores the last batch and prepares the next, so that
    the cores never wait for the database.
    """
    embedder = get_embedder()
    total = Filled()
    with ThreadPoolExecutor(1, thread_name_prefix="embedding") as beside:
        batch = _next_batch(embedder)
        made = beside.submit(_embed, batch, embedder)
        while batch:
            is_time_up = until is not None and timezone.now() >= until
            upcoming = {} if is_time_up else _next_batch(embedder)
            vectors = made.result()
            _hold(upcoming, now=timezone.now())
            made = beside.submit(_embed, upcoming, embedder)
            total += _settle(batch, vectors)
            if not upcoming and not is_time_up:
                # What just failed may be due again already.
                upcoming = _next_batch(embedder)
                made = beside.submit(_embed, upcoming, embedder)
            batch = upcoming
    return total


def has_pending(*, now: datetime) -> bool:
    return Embedding.objects.due(now).of_model(get_embedder().name).exists()


def claim(*, embedder: Embedder, now: datetime) -> list[Embedding]:
    """Take rows that are due, for as long as the lease runs; rows that another worker holds are passed over.

    A row that has failed before is taken alone: if it brings its worker down, it takes no innocent rows along.
    """
    with transaction.atomic():
        due = Embedding.objects.due(now).of_model(embedder.name).order_by("next_attempt_at", "id")
        rows = list(due.defer("vector").select_for_update(skip_locked=True)[: settings.EMBEDDING_BATCH_SIZE])
        if rows and rows[0].attempts:
            rows = rows[:1]
        rows = [row for row in rows if not row.attempts] or rows
        Embedding.objects.filter(pk__in=[row.pk for row in rows]).update(
            attempts=F("attempts") + 1, next_attempt_at=now + _lease()
        )
    return rows


def fill(rows: Sequence[Embedding], *, embedder: Embedder) -> Filled:
    """Make the vectors of claimed rows and store them."""
    batch = _with_texts(rows, embedder)
    return _settle(batch, _embed(batch, embedder))


def quarantine_exhausted(*, now: datetime) -> int:
    """Set aside what was attempted too often: rows whose worker died each time have nobody else to do it."""
    exhausted = Embedding.objects.waiting().filter(
        next_attempt_at__lte=now, attempts__gte=settings.EMBEDDING_MAX_ATTEMPTS
    )
    return exhausted.update(quarantined_at=now)


def _next_batch(embedder: Embedder) -> Batch:
    """Claimed rows with their texts; empty when nothing is due."""
    while rows := claim(embedder=embedder, now=timezone.now()):
        if batch := _with_texts(rows, embedder):
            return batch
    return {}


def _hold(batch: Batch, *, now: datetime) -> None:
    """Begin the lease of what was claimed ahead anew: while it waited for its turn, nobody was working on it."""
    if batch:
        Embedding.objects.filter(pk__in=[row.pk for row in batch], vector=None).update(next_attempt_at=now + _lease())


def _lease() -> timedelta:
    return timedelta(seconds=settings.EMBEDDING_LEASE_SECONDS)


def _embed(batch: Batch, embedder: Embedder) -> Matrix | Exception:
    """In a thread without a database: the vectors in the batch's order, or what went wrong."""
    try:
        return embedder.embed_documents(list(batch.values()))
    except Exception as error:  # a text the model cannot take must not stop the others
        return error


def _settle(batch: Batch, made: Matrix | Exception) -> Filled:
    rows = list(batch)
    match made:
        case EmbedderRefused():
            _count_failure(rows, made, now=timezone.now())
        case EmbedderError():
            _postpone(rows, made, now=timezone.now())
        case Exception():
            logger.error("Embedding failed for rows %s", [row.pk for row in rows], exc_info=made)
            _count_failure(rows, made, now=timezone.now())
        case _:
            _store(rows, made, now=timezone.now())
            return Filled(embedded=len(rows))
    return Filled(failed=len(rows))


def _with_texts(rows: Sequence[Embedding], embedder: Embedder) -> Batch:
    """The rows with their parts' texts. Rows of what is gone are dropped; rows of another text are made anew."""
    by_key: dict[SourceKey, list[Embedding]] = defaultdict(list)
    for row in rows:
        by_key[SourceKey(Corpus(row.corpus), row.source_id, row.chunk_index)].append(row)
    batch: Batch = {}
    for source in sources.load(by_key, embedder):
        of_source = by_key.pop(source.key)
        current = {row: source.parts[row.part] for row in of_source if _is_current(row, source)}
        if len(current) < len(of_source):
            with transaction.atomic():
                enqueue(source, embedder=embedder, now=timezone.now())
        batch |= current
    gone = [row.pk for of_source in by_key.values() for row in of_source]
    if gone:
        Embedding.objects.filter(pk__in=gone).delete()
    return batch


def _is_current(row: Embedding, source: Source) -> bool:
    return (
        row.user_id == source.user_id
        and row.part < len(source.parts)
        and bytes(row.content_hash) == content_hash(source.parts[row.part])
    )


def _store(rows: Sequence[Embedding], vectors: Matrix, *, now: datetime) -> None:
    """One round trip for the batch; a row whose text changed while its vector was made keeps waiting."""
    with connection.cursor() as cursor:
        cursor.executemany(
            """
            UPDATE embeddings SET vector = %s::halfvec, embedded_at = %s, last_error = ''
             WHERE id = %s AND content_hash = %s
            """,
            [
                (HalfVector(vector).to_text(), now, row.pk, bytes(row.content_hash))
                for row, vector in zip(rows, vectors, strict=True)
            ],
        )


def _postpone(rows: Sequence[Embedding], error: Exception, *, now: datetime) -> None:
    """The model is away: nobody's fault, so no attempt is counted, however long it lasts."""
    logger.warning("The embedding model is away: %s", error)
    Embedding.objects.filter(pk__in=[row.pk for row in rows]).update(
        attempts=F("attempts") - 1,
        last_error=_describe(error),
        next_attempt_at=now + timedelta(seconds=settings.EMBEDDING_SWEEP_SECONDS),
    )


def _count_failure(rows: Sequence[Embedding], error: Exception, *, now: datetime) -> None:
    """Try each row by itself soon; one that fails alone waits longer each time and is set aside in the end."""
    alone = len(rows) == 1
    for row in rows:
        attempts = row.attempts + 1
        wait = min(timedelta(seconds=2**attempts), BACKOFF_LIMIT) if alone else timedelta()
        is_last = attempts >= settings.EMBEDDING_MAX_ATTEMPTS
        Embedding.objects.filter(pk=row.pk).update(
            last_error=_describe(error),
            next_attempt_at=now + wait,
            quarantined_at=now if is_last else None,
        )


def _describe(error: Exception) -> str:
    """What staff may read: the kind of failure, never its message, which may quote somebody's words."""
    return str(error)[:200] if isinstance(error, EmbedderError) else type(error).__name__
