"""Runs the importing worker: claims the job that has waited longest and does the step of its import's state.

Every failure becomes a sentence that the user reads in the import; a bug is logged and retried.
"""

import logging
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from celery.exceptions import SoftTimeLimitExceeded
from django.db import DatabaseError
from django.utils import timezone

from core.isolation.acting import acting_as
from imports.models import Import, ImportJob
from imports.reading.items import UnreadableExport
from imports.storing import jobs, previewing, store, undoing
from imports.storing.jobs import LeaseLost
from intake.models import User

logger = logging.getLogger(__name__)

STEPS: Mapping[str, Callable[[ImportJob, User], None]] = {
    Import.State.UPLOADING: store.expire,
    Import.State.READY: store.expire,
    Import.State.READING: previewing.preview,
    Import.State.WAITING: store.store,
    Import.State.RUNNING: store.store,
    Import.State.UNDOING: undoing.undo,
}
STATES = tuple(STEPS)
BROKEN = "Something went wrong here, and it has been written to the log. What was stored stays, and can be undone."
TOO_LONG = "This export takes longer to read than this server allows. Unpack it, and bring it in in parts."
TOO_LARGE = "This export needs more memory than this server allows. Unpack it, and bring it in in parts."


def work() -> bool:
    """Claim one job and run it; returns whether there was one."""
    job = jobs.claim(now=timezone.now())
    if job is None:
        return False
    user = User.objects.filter(pk=job.user_id).first()
    if user is not None:
        with jobs.kept_alive(job):
            _do(job, user)
    return True


def _do(job: ImportJob, user: User) -> None:
    began = time.monotonic()
    try:
        if job.attempts > jobs.MAX_ATTEMPTS:
            _fail(job, user, BROKEN)
            return
        _step(job, user)
    except LeaseLost:
        logger.info("Import %s is not this worker's any more", job.import_id)
    except UnreadableExport as error:
        _fail(job, user, str(error))
    except SoftTimeLimitExceeded:
        _fail(job, user, TOO_LONG)
    except MemoryError:
        _fail(job, user, TOO_LARGE)
    except Exception as error:
        # It is retried from its last batch. The message is not logged: a database's may quote users' text.
        logger.error("Import %s failed in attempt %s: %s", job.import_id, job.attempts, _place_of(error))
        jobs.release(job, now=timezone.now())
    else:
        logger.info("Import %s: a step of %.1f s", job.import_id, time.monotonic() - began)


def _step(job: ImportJob, user: User) -> None:
    with acting_as(user):
        batch = Import.objects.for_user(user).filter(pk=job.import_id).first()
        step = None if batch is None else STEPS.get(batch.state)
        if step is None:
            ImportJob.objects.filter(user_id=job.user_id, pk=job.pk, lease=job.lease).delete()
            return
    step(job, user)


def _fail(job: ImportJob, user: User, sentence: str) -> None:
    try:
        with acting_as(user):
            store.finish(jobs.keep(job, user=user, states=STATES), Import.State.FAILED, error=sentence)
    except LeaseLost:
        return
    except DatabaseError as error:
        logger.error("Import %s could not be ended: %s", job.import_id, _place_of(error))


def _place_of(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return (
        f"{type(error).__name__} at {Path(frames[-1].filename).name}:{frames[-1].lineno}"
        if frames
        else type(error).__name__
    )
