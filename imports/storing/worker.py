"""The importing worker: claims the job that has waited longest and does the step of its import's state, such as the
preview.

Steps take turns.

Every failure becomes a sentence that the user reads in the import; a bug is logged and retried.
"""

import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from django.db import DatabaseError
from django.utils import timezone

from core.isolation.acting import acting_as
from core.text import sentence_of
from imports.models import Import, ImportJob
from imports.reading.items import UnreadableExport
from imports.storing import job as store
from imports.storing import queue, undoing
from imports.storing.preview import preview
from imports.storing.queue import LeaseLost
from intake.models import User

logger = logging.getLogger(__name__)
# Reading or storing one export may take so long; an import runs for some seconds before another has its turn.
LONGEST_SECONDS, TURN_SECONDS = 6 * 3600, 5.0
# More than one user has (`services.MOST_OPEN`).
AT_ONCE = 6
STEPS: Mapping[str, Callable[[ImportJob, User], Iterator[None]]] = {
    Import.State.UPLOADING: store.expire,
    Import.State.READY: store.expire,
    Import.State.READING: preview,
    Import.State.WAITING: store.store,
    Import.State.RUNNING: store.store,
    Import.State.UNDOING: undoing.undo,
}
STATES = tuple(STEPS)
BROKEN = "Something went wrong. The error has been logged. What was imported so far stays, and can be undone."
TOO_LONG = "This export takes longer to read than this server allows. Unpack it, and import it in parts."
TOO_LARGE = "This export needs more memory than this server allows. Unpack it, and import it in parts."


class TookTooLong(Exception):
    """A batch did not end: raised into it by the clock of its process."""


def work() -> bool:
    """Claim a job and run it, in turns with others that fall due; returns whether there was one.

    Each runs for some seconds, then the next: a large export holds up neither others nor its user's next preview. An
    import that waits for its turn keeps its place in the export, its lease and its thread for reading, so no work is
    done twice.
    """
    until = time.monotonic() + LONGEST_SECONDS
    job = queue.claim(now=timezone.now())
    under_way = deque([_batches_of(job)] if job else [])
    while under_way:
        batches = under_way.popleft()
        turn_ends = time.monotonic() + TURN_SECONDS
        for _batch in batches:
            if time.monotonic() < turn_ends:
                continue
            under_way.append(batches)
            if len(under_way) < AT_ONCE and time.monotonic() < until:
                another = queue.claim(now=timezone.now())
                under_way.extendleft([_batches_of(another)] if another else [])
            break
    return job is not None


def _batches_of(job: ImportJob) -> Iterator[None]:
    """The batches of a claimed job, whose lease is renewed until they end. Every failure ends them."""
    user = User.objects.filter(pk=job.user_id).first()
    if user is None:
        return
    seconds, began, sentence = 0.0, time.monotonic(), ""
    with queue.kept_alive(job):
        try:
            for batch in _step(job, user):
                seconds += time.monotonic() - began
                if seconds > LONGEST_SECONDS:
                    raise TookTooLong
                yield batch
                began = time.monotonic()
        except LeaseLost:
            logger.info("Import %s is not this worker's any more", job.import_id)
        except UnreadableExport as error:
            sentence = sentence_of(error)
        except TookTooLong:
            sentence = TOO_LONG
        except MemoryError:
            sentence = TOO_LARGE
        except Exception as error:
            # It is retried from its last batch, each time a little later. The message is not logged: a database's may
            # quote users' text.
            logger.error("Import %s failed in attempt %s: %s", job.import_id, job.attempts, _place_of(error))
            queue.held(job).update(due_at=timezone.now() + timedelta(seconds=5 * job.attempts), lease=None)
        if sentence:
            _fail(job, user, sentence)
    logger.info("Import %s: a step of %.1f s", job.import_id, seconds + time.monotonic() - began)


def _step(job: ImportJob, user: User) -> Iterator[None]:
    # A job that has killed its worker so often fails.
    if job.attempts > 3:
        _fail(job, user, BROKEN)
        return
    with acting_as(user):
        batch = Import.objects.for_user(user).filter(pk=job.import_id).first()
        step = None if batch is None else STEPS.get(batch.state)
        if step is None:
            queue.held(job).delete()
            return
    yield from step(job, user)


def _fail(job: ImportJob, user: User, sentence: str) -> None:
    try:
        with queue.step_of(job, user, STATES) as batch:
            store.finish(batch, Import.State.FAILED, error=sentence)
    except LeaseLost:
        return
    except DatabaseError as error:
        logger.error("Import %s could not be ended: %s", job.import_id, _place_of(error))


def _place_of(error: Exception) -> str:
    places = [f" at {Path(each.filename).name}:{each.lineno}" for each in traceback.extract_tb(error.__traceback__)]
    return "".join([type(error).__name__, *places[-1:]])
