"""What a Celery worker does before its first task: make sure of the embedding model, or refuse to start."""

import logging
import sys
from typing import Any

from celery.signals import worker_init, worker_process_init

from memory.embedders import EmbedderError, get_embedder

logger = logging.getLogger(__name__)


@worker_init.connect
def refuse_without_a_model(**_: Any) -> None:
    """In the parent, which loads nothing itself: its children do."""
    try:
        get_embedder().check()
    except EmbedderError as error:
        sys.exit(f"The worker cannot start: {error}")


@worker_process_init.connect
def load_the_model(**_: Any) -> None:
    """In each child, so that the first turn does not wait for it."""
    try:
        get_embedder().warm_up(for_documents=True)
    except EmbedderError:
        logger.exception("The embedding model cannot be loaded; what waits will be tried again")
