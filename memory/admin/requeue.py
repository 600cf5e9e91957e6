"""Returns rows to the queue, so that the workers make their vectors again."""

from datetime import datetime

from django.db import transaction

from memory import vectors, wake
from memory.models import Embedding, EmbeddingQuerySet

LIMIT = 10_000
BATCH = 1_000


def requeue(embeddings: EmbeddingQuerySet, *, now: datetime) -> int:
    """Make up to `LIMIT` of these rows wait like new ones; returns their number.

    Their vectors are deleted at once: a row either waits or has one. Rows that wait without an attempt are skipped, so
    that repeating this covers any number. Workers skip rows that are locked meanwhile.
    """
    untried = {"vector": None, "quarantined_at": None, "attempts": 0}
    ids = list(embeddings.exclude(**untried).values_list("pk", flat=True)[:LIMIT])
    requeued = sum(_requeue_batch(ids[start : start + BATCH], now) for start in range(0, len(ids), BATCH))
    if requeued:
        transaction.on_commit(wake.wake_worker, robust=True)
    return requeued


def _requeue_batch(ids: list[int], now: datetime) -> int:
    rows = Embedding.objects.filter(pk__in=ids)
    with transaction.atomic():
        vectors.unpack(rows)
        return rows.update(
            vector=None, embedded_at=None, attempts=0, last_error="", quarantined_at=None, next_attempt_at=now
        )
