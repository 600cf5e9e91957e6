"""The queue of imports: a row for each import that needs a worker, claimed under a lease.

A worker acts as a user only once it has claimed that user's job. It renews its lease in the transaction of each batch.
If it has lost the lease, to a cancellation or to another worker, the batch is rolled back and the worker stops.
"""

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import DatabaseError, connections, transaction
from django.db.models import QuerySet
from django.utils import timezone

from core.isolation.acting import acting_as
from imports.models import Import, ImportJob
from intake.models import User
from memory.index.writer import Waker

TASK = "imports.work"

# Another worker takes over after this time without a sign of life.
LEASE = timedelta(seconds=60)

logger = logging.getLogger(__name__)

wake_importer = Waker(TASK).wake_worker


class LeaseLost(Exception):
    """The worker has lost the import: cancelled, deleted, or taken over."""


def want_worker(batch: Import, *, now: datetime) -> None:
    """Queue the import in the caller's transaction; a worker is woken after the commit."""
    due_at(batch, now)
    transaction.on_commit(wake_importer, robust=True)


def due_at(batch: Import, moment: datetime) -> None:
    """Queue the import as new: a worker then takes its next step, or deletes an upload that nobody continued."""
    job = ImportJob(user_id=batch.user_id, import_id=batch.pk, created_at=moment, due_at=moment, lease=None, attempts=0)
    ImportJob.objects.bulk_create(
        [job],
        update_conflicts=True,
        unique_fields=["user", "import_id"],
        update_fields=["created_at", "due_at", "lease", "attempts"],
    )


def end(batch: Import) -> None:
    """The import needs no worker any more; a running one loses its lease."""
    ImportJob.objects.filter(user_id=batch.user_id, import_id=batch.pk).delete()


def claim(*, now: datetime) -> ImportJob | None:
    """Claim the job that has waited longest and that no other worker is claiming, for the length of a lease.

    It is found first and locked then, because a cluster can lock only on one node: that of the job's owner.
    """
    due = ImportJob.objects.filter(due_at__lte=now)
    # The number of jobs to look at: more than there are importing workers.
    for user_id, pk in due.order_by("created_at", "id").values_list("user_id", "pk")[:20]:
        with transaction.atomic():
            one = due.filter(user_id=user_id, pk=pk)
            job = one.select_for_update(skip_locked=True).first()
            if job is not None:
                job.lease = uuid.uuid4()
                job.attempts += 1
                job.due_at = now + LEASE
                one.update(lease=job.lease, attempts=job.attempts, due_at=job.due_at)
                return job
    return None


def has_due(*, now: datetime) -> bool:
    return ImportJob.objects.filter(due_at__lte=now).exists()


def held(job: ImportJob) -> QuerySet[ImportJob]:
    """The job's row, unless the worker that claimed it has lost its lease."""
    return ImportJob.objects.filter(user_id=job.user_id, pk=job.pk, lease=job.lease)


@contextmanager
def step_of(job: ImportJob, user: User, states: tuple[str, ...]) -> Iterator[Import]:
    """A transaction that acts as the user: the import, its row locked, with a renewed lease. Raises `LeaseLost`.

    The import's row is locked before the job's, as in a cancellation.
    """
    with acting_as(user):
        batch = Import.objects.for_user(user).select_for_update().filter(pk=job.import_id, state__in=states).first()
        if batch is None or not held(job).update(due_at=timezone.now() + LEASE):
            raise LeaseLost
        yield batch


@contextmanager
def kept_alive(job: ImportJob) -> Iterator[None]:
    """Renews the lease from a thread: reading a large export takes minutes before its first batch."""
    ended = threading.Event()
    thread = threading.Thread(target=_renew, args=(job, ended), name="import lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _renew(job: ImportJob, ended: threading.Event) -> None:
    # How often a worker renews its lease within the lease's time.
    while not ended.wait(LEASE.total_seconds() / 4):
        try:
            held(job).update(due_at=timezone.now() + LEASE)
        except DatabaseError:
            logger.warning("The lease of an import could not be renewed")
        finally:
            connections.close_all()
