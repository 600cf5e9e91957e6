"""The tasks of imports. They have no arguments: the rows of `import_jobs` are the queue."""

import logging
import os
import subprocess
import sys
from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down
from django.conf import settings
from django.utils import timezone

from core.rounds import steps
from imports.storing import queue, uploads, worker

logger = logging.getLogger(__name__)

# Each import has its own limit between two batches; this one is for a batch that never ends.
LONGEST_SECONDS = worker.LONGEST_SECONDS * (1 + worker.AT_ONCE)
COMMAND = [sys.executable, "-m", "imports.storing.process"]
# The processes that import at present: one.
_children: list[subprocess.Popen[bytes]] = []


@worker_shutting_down.connect
def end_children(**_: Any) -> None:
    """What they had under way goes on in another worker, once its lease has run out."""
    for child in _children:
        child.terminate()


@shared_task(name=queue.TASK)
def work() -> None:
    """The imports that are due, in a process of its own: it has limits, and its memory ends with it."""
    if not queue.has_due(now=timezone.now()):
        return
    # It has no address but that of the web role, as which it acts as one person at a time.
    others = ("DATABASE_WORKER_URL", "DATABASE_OWNER_URL", "DATABASE_BACKUP_URL")
    child = subprocess.Popen(COMMAND, cwd=settings.BASE_DIR, env={**os.environ, **dict.fromkeys(others, "")})  # noqa: S603 - a fixed command
    _children.append(child)
    try:
        status = child.wait(LONGEST_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        status = child.wait()
    finally:
        _children.remove(child)
    if status:
        logger.error("The process that imports ended with status %d; what it left is tried again", status)
    elif queue.has_due(now=timezone.now()):
        work.apply_async(retry=False)


@shared_task(name="imports.sweep")
def sweep() -> None:
    """Find jobs without a message (the broker was unavailable, or a worker died), and files without an import."""
    steps(
        "imports.sweep",
        lambda: uploads.delete_forgotten(now=timezone.now()),
        lambda: queue.has_due(now=timezone.now()) and work.apply_async(retry=False),
    )
