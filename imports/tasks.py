"""The tasks of the importing worker. They have no arguments: the rows of `import_jobs` are the queue."""

import resource
from typing import Any

from celery import shared_task
from celery.signals import worker_process_init
from django.conf import settings
from django.utils import timezone

from core.resilience import steps
from imports.storing import queue, worker
from memory.tasks import is_importer

# The time for reporting that an import has taken too long.
GRACE_SECONDS = 60
# Each import has its own limit between two batches; this one is for a batch that never ends.
LONGEST_TASK_SECONDS = worker.LONGEST_SECONDS * (1 + worker.AT_ONCE)


@worker_process_init.connect
def bound_memory(**_: Any) -> None:
    """An export that needs more memory fails with a sentence, before the kernel kills another process."""
    if is_importer():
        most = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (settings.IMPORTS_MEMORY_BYTES, most))


@shared_task(name=queue.TASK, soft_time_limit=LONGEST_TASK_SECONDS, time_limit=LONGEST_TASK_SECONDS + GRACE_SECONDS)
def work() -> None:
    """One job, with those that take turns with it; a long queue is processed in several tasks."""
    if worker.work() and queue.has_due(now=timezone.now()):
        work.apply_async(retry=False)


@shared_task(name="imports.sweep")
def sweep() -> None:
    """Find jobs without a message (the broker was unavailable, or a worker died), and files without an import."""
    steps("imports.sweep", _delete_forgotten, _wake)


def _delete_forgotten() -> None:
    queue.delete_forgotten(now=timezone.now())


def _wake() -> None:
    if queue.has_due(now=timezone.now()):
        work.apply_async(retry=False)
