"""What a Celery worker does before its first task: make sure of its role and of the model, or refuse to start."""

import logging
import sys
from typing import Any

from celery.signals import worker_init, worker_process_init
from django.conf import settings
from django.db import DatabaseError, connections

from core.isolation.checks import NotIsolated, refuse_unless_isolated
from memory.embedders import EmbedderError, configured_embedders, get_embedder, require_active

logger = logging.getLogger(__name__)


@worker_init.connect
def refuse_unless_a_worker_in_the_database(**_: Any) -> None:
    """Also in the parent, whose connection and pool its children must not inherit."""
    try:
        refuse_unless_isolated(settings.DATABASE_ROLES.worker)
    except NotIsolated as refusal:
        sys.exit(f"The worker cannot start: {refusal}")
    except DatabaseError as error:
        sys.exit(f"The worker cannot start: the database does not answer ({error}).")
    finally:
        _leave_no_connection()


@worker_init.connect
def refuse_without_a_model(**_: Any) -> None:
    """In the parent, which loads nothing itself: its children do."""
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
    """In each child, so that the first turn does not wait for it."""
    try:
        get_embedder().warm_up(for_documents=True)
    except EmbedderError:
        logger.exception("The embedding model cannot be loaded; what waits will be tried again")


def _leave_no_connection() -> None:
    connections.close_all()
    connections["default"].close_pool()  # type: ignore[attr-defined]
