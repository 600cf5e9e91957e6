"""The tasks of the workers, and the checks before a worker's first task.

A task carries no text and no vector. It reads the pending rows in the database, so running it twice changes nothing.
"""

import logging
import sys
from datetime import timedelta
from typing import Any

from celery import shared_task
from celery.signals import worker_init, worker_process_init
from django.conf import settings
from django.db import DatabaseError, connections
from django.utils import timezone

from core.isolation.checks import NotIsolated, refuse_unless_isolated
from core.schema import DifferentTables, refuse_unless_fitting
from intake import retention, temporary, visitors
from intake.accounts import activity
from intake.answers.sweeping import close_abandoned_turns as close_turns
from memory import indexing, term_segments, vectors
from memory.embedders import EmbedderError, configured_embedders, get_embedder, require_active
from memory.overview import drawing

logger = logging.getLogger(__name__)

# Well under the broker's visibility timeout, after which a second worker would get the task.
TASK_SECONDS = 10


@worker_init.connect
def refuse_unless_a_worker_in_the_database(**_: Any) -> None:
    """Also in the parent process, whose connection and pool its children must not inherit.

    The importing worker writes conversations, which the worker role may not: it uses the web role, and acts as a user.
    """
    roles = settings.DATABASE_ROLES
    try:
        refuse_unless_fitting()
        refuse_unless_isolated(roles.web if settings.IMPORTING_WORKER else roles.worker)
    except (DifferentTables, NotIsolated) as refusal:
        sys.exit(f"The worker cannot start: {refusal}")
    except DatabaseError as error:
        sys.exit(f"The worker cannot start: the database does not answer ({error}).")
    finally:
        _leave_no_connection()


@worker_init.connect
def refuse_without_a_model(**_: Any) -> None:
    """In the parent process, which loads nothing itself: its children do."""
    try:
        embedders = configured_embedders()
        for embedder in embedders:
            embedder.check()
        require_active(*(embedder.name for embedder in embedders))
    except EmbedderError as error:
        sys.exit(f"The worker cannot start: {error}")
    except DatabaseError as error:
        sys.exit(f"The worker cannot start: the database does not say which model is active ({error}).")
    finally:
        _leave_no_connection()


@worker_process_init.connect
def load_the_model(**_: Any) -> None:
    """In each child, so that the first turn does not wait for it. An import only counts tokens."""
    if settings.IMPORTING_WORKER:
        return
    try:
        get_embedder().warm_up(for_documents=True)
    except EmbedderError:
        logger.exception("The embedding model cannot be loaded; what waits will be tried again")


def _leave_no_connection() -> None:
    connections.close_all()
    connections["default"].close_pool()  # type: ignore[attr-defined]


@shared_task(name="memory.embed_pending")
def embed_pending() -> None:
    """Fill vectors; a long queue is processed in several tasks.

    A separate task flushes terms later: pending terms can be found already, a missing vector cannot.
    """
    indexing.embed_pending(until=timezone.now() + timedelta(seconds=TASK_SECONDS))
    flush_terms.apply_async(retry=False)
    if indexing.has_pending(now=timezone.now()):
        embed_pending.apply_async(retry=False)


@shared_task(name="memory.flush_terms")
def flush_terms() -> None:
    """Move pending terms into segments, and rewrite those with deleted texts."""
    until = timezone.now() + timedelta(seconds=TASK_SECONDS)
    term_segments.flush(until=until)
    term_segments.purge(until=until)


@shared_task(name="memory.sweep_pending")
def sweep_pending() -> None:
    """Find rows without a message: the broker was unavailable, a worker died, a lease expired."""
    indexing.quarantine_exhausted(now=timezone.now())
    embed_pending()


@shared_task(name="memory.sweep_deleted")
def sweep_deleted() -> None:
    """Remove the index data of deleted texts, and pack unpacked vectors."""
    until = timezone.now() + timedelta(seconds=TASK_SECONDS)
    term_segments.mark_lost()
    term_segments.purge(until=until)
    vectors.sweep()
    vectors.pack_all(until=until)


@shared_task(name="memory.draw_maps")
def draw_maps() -> None:
    """Draw the maps and find the words of the timelines that users look at and that are outdated."""
    drawing.drop_unasked(now=timezone.now())
    drawing.draw_due(until=timezone.now() + timedelta(seconds=TASK_SECONDS))


@shared_task(name="memory.remove_silent_visitors")
def remove_silent_visitors() -> None:
    visitors.remove_silent(now=timezone.now(), after=timedelta(days=settings.VISITOR_DAYS))


@shared_task(name="memory.remove_temporary_chats")
def remove_temporary_chats() -> None:
    temporary.remove_expired(now=timezone.now())


@shared_task(name="memory.remove_old_turns")
def remove_old_turns() -> None:
    """In the importing worker, which may act as each user (`CELERY_TASK_ROUTES`). Imports run between the steps."""
    if retention.remove_old_turns(now=timezone.now()):
        remove_old_turns.apply_async(retry=False)


@shared_task(name="memory.remove_old_activity")
def remove_old_activity() -> None:
    """Activity entries that are more than a year old."""
    activity.remove_old()


@shared_task(name="memory.close_abandoned_turns")
def close_abandoned_turns() -> None:
    close_turns(now=timezone.now(), idle=timedelta(seconds=settings.TURN_ABANDONED_SECONDS))
