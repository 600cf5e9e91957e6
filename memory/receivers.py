"""Where memory listens to intake: a turn that has ended and has an owner is written into the index's queue."""

import logging
from typing import Any

from django.db.models.signals import post_save
from django.dispatch import receiver
from django.utils import timezone

from intake.models import Turn
from memory import indexing, sources
from memory.embedders import EmbedderError, get_embedder

logger = logging.getLogger(__name__)


@receiver(post_save, sender=Turn, dispatch_uid="memory.index_turn")
def index_turn(instance: Turn, raw: bool, **kwargs: Any) -> None:
    if raw or instance.user_id is None or not instance.has_ended:
        return
    try:
        embedder = get_embedder()
        source = sources.from_turn(instance, embedder)
    except EmbedderError:
        # What was said is kept all the same; `index_missing` finds it once the model is mended.
        logger.exception("A turn was saved without being queued for indexing")
        return
    indexing.enqueue(source, embedder=embedder, now=timezone.now())
