"""The workers' tasks: they take no text and no vector, look at what waits in the database, and converge."""

from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from intake import visitors
from intake.services import close_abandoned_turns as close_turns
from memory import indexing, vectors, worker

__all__ = ["close_abandoned_turns", "embed_pending", "pack_loose", "remove_silent_visitors", "sweep_pending", "worker"]

# Well under the broker's visibility timeout: a task that ran longer would be handed to a second worker meanwhile.
TASK_SECONDS = 10


@shared_task(name="memory.embed_pending")
def embed_pending() -> None:
    """Fill vectors; a long queue is worked off in several tasks."""
    indexing.embed_pending(until=timezone.now() + timedelta(seconds=TASK_SECONDS))
    if indexing.has_pending(now=timezone.now()):
        embed_pending.apply_async(retry=False)


@shared_task(name="memory.sweep_pending")
def sweep_pending() -> None:
    """Find what no nudge reached: a broker was away, a worker died, a lease ran out."""
    indexing.quarantine_exhausted(now=timezone.now())
    embed_pending()


@shared_task(name="memory.pack_loose")
def pack_loose() -> None:
    """Find vectors that were made before there were blocks, or while another worker held their neighbours."""
    vectors.pack_all(until=timezone.now() + timedelta(seconds=TASK_SECONDS))


@shared_task(name="memory.remove_silent_visitors")
def remove_silent_visitors() -> None:
    visitors.remove_silent(now=timezone.now(), after=timedelta(days=settings.VISITOR_DAYS))


@shared_task(name="memory.close_abandoned_turns")
def close_abandoned_turns() -> None:
    close_turns(now=timezone.now(), idle=timedelta(seconds=settings.TURN_ABANDONED_SECONDS))
