"""Where memory listens to intake: a turn that has ended and has an owner is indexed, and a deleted one forgotten."""

import logging
from typing import Any

from django.db.models import Model, QuerySet
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.utils import timezone

from intake.models import Conversation, Turn
from memory import indexing, sources, words
from memory.embedders import EmbedderError, get_embedder
from memory.models import Corpus, Embedding, IndexedText

logger = logging.getLogger(__name__)


@receiver(post_save, sender=Turn, dispatch_uid="memory.index_turn")
def index_turn(instance: Turn, raw: bool, **kwargs: Any) -> None:
    if raw or instance.user_id is None or not instance.has_ended:
        return
    try:
        embedder = get_embedder()
        source = sources.from_turn(instance, embedder)
    except EmbedderError:
        # What was said is kept and found by its words; `index_missing` queues it once the model is mended.
        words.post(sources.text_of(instance))
        logger.exception("A turn was saved without being queued for indexing")
        return
    indexing.enqueue(source, embedder=embedder, now=timezone.now())


@receiver(post_delete, sender=Turn, dispatch_uid="memory.forget_turn")
def forget_turn(instance: Turn, origin: Model | QuerySet[Any], **kwargs: Any) -> None:
    """A turn's rows go with it. A conversation's or a person's go with that, all at once."""
    if instance.user_id is not None and _deleted(origin) is Turn:
        indexing.forget(sources.text_of(instance))


@receiver(post_delete, sender=Conversation, dispatch_uid="memory.forget_conversation")
def forget_conversation(instance: Conversation, origin: Model | QuerySet[Any], **kwargs: Any) -> None:
    if instance.user_id is not None and _deleted(origin) is Conversation:
        place = {"user": instance.user_id, "corpus": Corpus.CHAT, "source_id": instance.pk}
        IndexedText.objects.filter(**place).delete()
        Embedding.objects.filter(**place).delete()


def _deleted(origin: Model | QuerySet[Any]) -> type[Model]:
    """Of what kind the one row or the rows are whose deletion began it."""
    return origin.model if isinstance(origin, QuerySet) else type(origin)
