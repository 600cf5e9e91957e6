"""The queue of imports, their uploads on disk, and the vectors that still wait.

The queue of imports: a row for each import that needs a worker, claimed under a lease.

A worker acts as a user only once it has claimed that user's job. It renews its lease in the transaction of each batch.
If it has lost the lease, to a cancellation or to another worker, the batch is rolled back and the worker stops.
"""

import fcntl
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

from django.conf import settings
from django.db import DatabaseError, connections, transaction
from django.utils import timezone
from pydantic import Field

from core.errors import NoRoom
from core.resilience import for_each
from core.validation import Shape
from imports.models import UNUSED_FOR, Import, ImportJob
from imports.reading.files import Limits
from intake.attachments.services import FREE_BYTES
from intake.models import User
from memory.index.writer import Waker
from memory.models import Embedding

TASK = "imports.work"
# A job that has killed its worker so often fails.
MAX_ATTEMPTS = 3

# How often a worker renews its lease within the lease's time.
BEATS = 4
RETRY_SECONDS = 5
# Another worker takes over after this time without a sign of life.
LEASE = timedelta(seconds=60)
# The number of jobs to look at: more than there are importing workers.
CANDIDATES = 20

logger = logging.getLogger(__name__)

wake_importer = Waker(TASK).wake_worker


class LeaseLost(Exception):
    """The worker has lost the import: cancelled, deleted, or taken over."""


def want_worker(batch: Import, *, now: datetime) -> None:
    """Queue the import in the caller's transaction; a worker is woken after the commit."""
    _put(batch, now)
    transaction.on_commit(wake_importer, robust=True)


def expire_at(batch: Import, moment: datetime) -> None:
    """Until then the user may continue the upload; then a worker deletes it."""
    _put(batch, moment)


def _put(batch: Import, moment: datetime) -> None:
    """One job for each import, as new."""
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


def claim(*, now: datetime, besides: Collection[int] = ()) -> ImportJob | None:
    """Claim the job that has waited longest and that no other worker is claiming, for the length of a lease.

    `besides`: the users whose imports this worker has under way; each has one at a time.

    It is found first and locked then, because a cluster can lock only on one node: that of the job's owner.
    """
    due = ImportJob.objects.filter(due_at__lte=now).exclude(user_id__in=list(besides))
    for user_id, pk in due.order_by("created_at", "id").values_list("user_id", "pk")[:CANDIDATES]:
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


def keep(job: ImportJob, *, user: User, states: tuple[str, ...]) -> Import:
    """The import, its row locked, with a renewed lease. Raises `LeaseLost`.

    The import's row is locked before the job's, as in a cancellation.
    """
    batch = Import.objects.for_user(user).select_for_update().filter(pk=job.import_id, state__in=states).first()
    mine = ImportJob.objects.filter(user_id=job.user_id, pk=job.pk, lease=job.lease)
    if batch is None or not mine.update(due_at=timezone.now() + LEASE):
        raise LeaseLost
    return batch


def count_anew(job: ImportJob) -> None:
    """In the transaction of a batch that has got on: what fails next fails for the first time."""
    ImportJob.objects.filter(user_id=job.user_id, pk=job.pk, lease=job.lease).update(attempts=0)


def release(job: ImportJob, *, now: datetime) -> None:
    """Let the job be retried in a moment."""
    later = now + timedelta(seconds=RETRY_SECONDS * job.attempts)
    ImportJob.objects.filter(user_id=job.user_id, pk=job.pk, lease=job.lease).update(due_at=later, lease=None)


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
    while not ended.wait(LEASE.total_seconds() / BEATS):
        try:
            ImportJob.objects.filter(user_id=job.user_id, pk=job.pk, lease=job.lease).update(
                due_at=timezone.now() + LEASE
            )
        except DatabaseError:
            logger.warning("The lease of an import could not be renewed")
        finally:
            connections.close_all()


# --- Stores uploads on disk: a private folder for each user, a file for each import, written chunk by chunk ---

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
# A file is slightly older than the row that it belongs to.
FORGOTTEN_SECONDS = 3600
# The unit of `st_blocks`, by POSIX.
BLOCK = 512


def upload_path(batch: Import) -> Path:
    """Nothing of it comes from the user: both parts are ids of ours."""
    return Path(settings.IMPORTS_DIR) / str(batch.user_id) / str(batch.pk)


def write(batch: Import, data: bytes, *, offset: int) -> None:
    """Write a chunk, overwriting data of a broken attempt after the offset. Raises `NoRoom`."""
    path = upload_path(batch)
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    if shutil.disk_usage(path.parent).free - len(data) < FREE_BYTES:
        raise NoRoom
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE)
        with os.fdopen(descriptor, "wb") as upload:
            upload.seek(offset)
            upload.write(data)
    except OSError:
        raise NoRoom from None


def keep_until_expiry(batch: Import, *, now: datetime) -> None:
    """A worker deletes an upload that is not continued."""
    expire_at(batch, now + UNUSED_FOR)


def delete_forgotten(*, now: datetime) -> int:
    """Delete files that belong to no open import: their account was deleted, or a worker died while it ended one."""
    removed: list[Path] = []

    def look_at(path: Path) -> None:
        if path.stat().st_mtime > now.timestamp() - FORGOTTEN_SECONDS:
            return
        # Raises `ValidationError` for a name that is no id: a file of somebody else, which is left alone.
        if not ImportJob.objects.filter(import_id=path.name).exists():
            path.unlink(missing_ok=True)
            removed.append(path)

    for_each("imports.sweep, files", Path(settings.IMPORTS_DIR).glob("*/*"), look_at)
    return len(removed)


def delete(batch: Import) -> None:
    upload_path(batch).unlink(missing_ok=True)


def reserve(batch: Import) -> None:
    """Reserve the disk space of an announced upload. Raises `NoRoom` unless enough stays free once all are complete.

    The file has its final length from the beginning, without the blocks: the missing blocks of all files are the space
    that the uploads of all users may still take. So the folder itself counts, for every process that shares it.
    """
    folder, path = Path(settings.IMPORTS_DIR), upload_path(batch)
    path.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    # The folder's own lock: one upload after the other is counted against the free space.
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shutil.disk_usage(folder).free - _announced(folder) - batch.bytes < FREE_BYTES:
            raise NoRoom
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE), "wb") as upload:
            upload.truncate(batch.bytes)
    except OSError:
        raise NoRoom from None
    finally:
        os.close(lock)


def _announced(folder: Path) -> int:
    """Bytes that open uploads have announced and not sent yet."""
    missing = 0
    for path in folder.glob("*/*"):
        with suppress(FileNotFoundError):
            kind = path.stat()
            missing += max(0, kind.st_size - kind.st_blocks * BLOCK)
    return missing


def reading_limits() -> Limits:
    """Zips in a zip are copied beside the uploads, on the disk whose space is checked, never to the system's folder."""
    folder = Path(settings.IMPORTS_DIR) / "temporary"
    folder.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    return Limits(temporary=folder, free_bytes=FREE_BYTES)


# --- Counts a user's passages that wait for their vectors, and estimates the time at the present rate ---

# The rate is that of the last minute.
RATE_SECONDS = 60


class VectorsOutput(Shape):
    waiting: Annotated[int, Field(description="Passages that wait for a vector.")]
    seconds: Annotated[int | None, Field(description="About how long at the present rate; null: not known yet.")]


def waiting_vectors(user: User, *, now: datetime) -> VectorsOutput:
    mine = Embedding.objects.for_user(user)
    passages = mine.waiting().count()
    made = mine.filter(embedded_at__gte=now - timedelta(seconds=RATE_SECONDS)).count()
    if not passages:
        return VectorsOutput(waiting=0, seconds=0)
    return VectorsOutput(waiting=passages, seconds=round(passages * RATE_SECONDS / made) if made else None)
