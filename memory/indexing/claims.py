"""What happens to a row while it waits for its vector: it is claimed for a while, put off, or set aside at last."""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import F

from memory.embedders import Embedder, EmbedderError, get_embedder
from memory.models import Embedding

logger = logging.getLogger(__name__)

BACKOFF_LIMIT = timedelta(minutes=10)
# With so much of its lease left a batch is as good as claimed just now: it takes a second or two.
LEASE_LEFT = 2 / 3


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
    for row in rows:
        row.next_attempt_at = now + _lease()
    return rows


def hold(rows: Collection[Embedding], *, now: datetime) -> None:
    """Begin the lease of what was claimed ahead anew: while it waited for its turn, nobody was working on it.

    Not while most of it is left, since each row is written anew for it.
    """
    if any(row.next_attempt_at < now + LEASE_LEFT * _lease() for row in rows):
        Embedding.objects.filter(pk__in=[row.pk for row in rows], vector=None).update(next_attempt_at=now + _lease())


def quarantine_exhausted(*, now: datetime) -> int:
    """Set aside what was attempted too often: rows whose worker died each time have nobody else to do it."""
    exhausted = Embedding.objects.waiting().filter(
        next_attempt_at__lte=now, attempts__gte=settings.EMBEDDING_MAX_ATTEMPTS
    )
    return exhausted.update(quarantined_at=now)


def postpone(rows: Sequence[Embedding], error: Exception, *, now: datetime) -> None:
    """The model is away: nobody's fault, so no attempt is counted, however long it lasts."""
    logger.warning("The embedding model is away: %s", error)
    Embedding.objects.filter(pk__in=[row.pk for row in rows]).update(
        attempts=F("attempts") - 1,
        last_error=_describe(error),
        next_attempt_at=now + timedelta(seconds=settings.EMBEDDING_SWEEP_SECONDS),
    )


def count_failure(rows: Sequence[Embedding], error: Exception, *, now: datetime) -> None:
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


def _lease() -> timedelta:
    return timedelta(seconds=settings.EMBEDDING_LEASE_SECONDS)


def _describe(error: Exception) -> str:
    """What staff may read: the kind of failure, never its message, which may quote somebody's words."""
    return str(error)[:200] if isinstance(error, EmbedderError) else type(error).__name__
