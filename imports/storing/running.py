"""Runs the importing worker: claims the job that has waited longest and does the step of its import's state.

Steps of different users take turns.

Every failure becomes a sentence that the user reads in the import; a bug is logged and retried.
"""

import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from core.isolation.acting import acting_as
from imports.models import Import, ImportJob
from imports.reading.items import UnreadableExport
from imports.storing import jobs, previewing, store, undoing
from imports.storing.jobs import LeaseLost
from intake.models import User

logger = logging.getLogger(__name__)

STEPS: Mapping[str, Callable[[ImportJob, User], Iterator[None]]] = {
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
    """Claim a job and run it, in turns with those of other users that fall due; returns whether there was one.

    Each runs for some seconds, then the next: a user with a large export holds up nobody. An import that waits for its
    turn keeps its place in the export, its lease and its thread for reading, so no work is done twice.
    """
    first = _claimed()
    if first is None:
        return False
    until = time.monotonic() + settings.IMPORTS_SECONDS
    under_way = deque([first])
    try:
        while under_way:
            if not under_way[0].go_on(settings.IMPORTS_TURN_SECONDS):
                under_way.popleft()
                continue
            under_way.rotate(-1)
            if len(under_way) < settings.IMPORTS_AT_ONCE and time.monotonic() < until:
                another = _claimed(besides=[each.job.user_id for each in under_way])
                under_way.extendleft([] if another is None else [another])
    finally:
        # A worker that is stopped leaves each to another one, once its lease has run out.
        for each in under_way:
            each.end()
    return True


def _claimed(*, besides: Collection[int] = ()) -> "_Running | None":
    job = jobs.claim(now=timezone.now(), besides=besides)
    if job is None:
        return None
    return _Running(job, User.objects.filter(pk=job.user_id).first())


class _Running:
    """A claimed job and the rest of its step. Its lease is renewed until the step has ended."""

    def __init__(self, job: ImportJob, user: User | None) -> None:
        self.job = job
        self._user = user
        self._seconds = 0.0
        self._lease = ExitStack()
        self._lease.enter_context(jobs.kept_alive(job))
        self._step: Iterator[None] = iter(()) if user is None else _step(job, user)

    def go_on(self, seconds: float) -> bool:
        """Run for about so long; returns whether there is more to do."""
        began = time.monotonic()
        while (is_unfinished := self._advance()) and time.monotonic() - began < seconds:
            pass
        self._seconds += time.monotonic() - began
        if is_unfinished and self._seconds > settings.IMPORTS_SECONDS and self._user is not None:
            _fail(self.job, self._user, TOO_LONG)
            is_unfinished = False
        if not is_unfinished:
            self.end()
        return is_unfinished

    def _advance(self) -> bool:
        """One batch. Every failure ends the step."""
        job = self.job
        try:
            next(self._step)
            return True
        except StopIteration:
            return False
        except LeaseLost:
            logger.info("Import %s is not this worker's any more", job.import_id)
        except UnreadableExport as error:
            self._fail(str(error))
        except SoftTimeLimitExceeded:
            self._fail(TOO_LONG)
        except MemoryError:
            self._fail(TOO_LARGE)
        except Exception as error:
            # It is retried from its last batch. The message is not logged: a database's may quote users' text.
            logger.error("Import %s failed in attempt %s: %s", job.import_id, job.attempts, _place_of(error))
            jobs.release(job, now=timezone.now())
        return False

    def _fail(self, sentence: str) -> None:
        if self._user is not None:
            _fail(self.job, self._user, sentence)

    def end(self) -> None:
        # Closes its files and ends its thread, also where the step was left in the middle.
        self._step = iter(())
        self._lease.close()
        logger.info("Import %s: a step of %.1f s", self.job.import_id, self._seconds)


def _step(job: ImportJob, user: User) -> Iterator[None]:
    if job.attempts > jobs.MAX_ATTEMPTS:
        _fail(job, user, BROKEN)
        return
    with acting_as(user):
        batch = Import.objects.for_user(user).filter(pk=job.import_id).first()
        step = None if batch is None else STEPS.get(batch.state)
        if step is None:
            ImportJob.objects.filter(user_id=job.user_id, pk=job.pk, lease=job.lease).delete()
            return
    yield from step(job, user)


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
