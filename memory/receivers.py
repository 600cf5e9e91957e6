"""Signal receivers: index a registered user's turn when it has ended, and remove deleted texts from the index.

And the check of the embedding model, which `manage.py check --database default` runs.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connections
from django.db.models import Model, QuerySet
from django.db.models.signals import post_save, pre_delete, pre_save
from django.dispatch import receiver
from django.utils import timezone

from core.isolation.acting import Caller, binding_of
from intake.accounts import activity
from intake.attachments.services import files_waiting
from intake.chats import idempotency
from intake.chats.deleting import turns_deleted, withdraw_results
from intake.chats.exporting import turn_exported
from intake.chats.history import turns_saved
from intake.models import Activity, Attachment, Conversation, Turn, User
from memory import documents, index, quotas
from memory.backends.embedders import EmbedderError, configured_embedders, require_active
from memory.index.sources import document_place, record_place, turn_entry, turn_place
from memory.index.writer import Waker
from memory.models import Corpus, EmbeddingModel, MemoryDocument, MemoryRecord, Proposal
from memory.models.documents import Place
from memory.projects import label_changed
from memory.sources_of_answers import sources_of


@receiver(pre_save, sender=Turn, dispatch_uid="memory.take_message")
def take_message(instance: Turn, raw: bool, **kwargs: Any) -> None:
    """Counts a message against its user's quota. What comes with its answer is counted by who stores it."""
    if not raw and instance._state.adding and not instance.has_ended:
        quotas.take_message(instance.user_id, instance.user_message)


@receiver(post_save, sender=Turn, dispatch_uid="memory.index_turn")
def index_turn(instance: Turn, raw: bool, **kwargs: Any) -> None:
    if not raw and _is_indexed(instance):
        index.index(turn_entry(instance))


@receiver(turns_saved, dispatch_uid="memory.index_turns")
def index_turns(turns: Sequence[Turn], **kwargs: Any) -> None:
    if _is_indexed(turns[0]):
        index.index_new([turn_entry(turn) for turn in turns])


@receiver(turn_exported, dispatch_uid="memory.export_sources")
def export_sources(turn: Turn, user: User, **kwargs: Any) -> dict[str, Any]:
    sources = sources_of([turn], Caller(user_id=user.pk, bound_to=binding_of(user))).get(turn.pk)
    return {"sources": [each.output.as_data() for each in sources]} if sources else {}


def _is_indexed(turn: Turn) -> bool:
    """A visitor's turn is indexed at registration. The database is queried, because they may register at any moment."""
    if turn.user_id is None or turn.is_temporary or not turn.has_ended:
        return False
    return User.objects.filter(pk=turn.user_id, is_visitor=False).exists()


@receiver(pre_delete, sender=Turn, dispatch_uid="memory.forget_turn")
def forget_turn(instance: Turn, origin: Model | QuerySet[Any], **kwargs: Any) -> None:
    """A conversation's turns are deleted together with it.

    All these receivers run before a deletion: foreign keys would delete the index's rows, and leave blocks and totals
    behind.
    """
    if instance.user_id is not None and _deleted(origin) is Turn:
        index.forget(turn_place(instance))


@receiver(turns_deleted, dispatch_uid="memory.forget_turns")
def forget_turns(user_id: int | None, conversation_id: UUID, numbers: list[int] | None, **kwargs: Any) -> None:
    if user_id is not None:
        index.forget(Place(user_id, Corpus.CHAT, conversation_id), chunks=numbers)
        _forget_attachments(user_id, conversation_id, numbers)


def _forget_attachments(user_id: int, conversation_id: UUID, numbers: list[int] | None) -> None:
    """Before the database deletes them with their turns. Their rows are locked, so that no worker indexes one
    meanwhile.
    """
    files = Attachment.objects.filter(user_id=user_id, conversation_id=conversation_id)
    files = files if numbers is None else files.filter(turn_number__in=numbers)
    for pk in files.order_by("pk").select_for_update().values_list("pk", flat=True):
        index.forget(Place(user_id, Corpus.ATTACHMENT, pk))


_waker_of_readers = Waker("memory.read_attachments")


@receiver(files_waiting, dispatch_uid="memory.read_attachments")
def read_attachments(**kwargs: Any) -> None:
    """A worker reads the files that wait, and indexes what it has read."""
    _waker_of_readers.wake_worker()


@receiver(pre_delete, sender=Attachment, dispatch_uid="memory.forget_attachment")
def forget_attachment(instance: Attachment, **kwargs: Any) -> None:
    if instance.conversation_id is not None:
        index.forget(Place(instance.user_id, Corpus.ATTACHMENT, instance.pk))
        withdraw_results(instance.user_id, instance.pk)


@receiver(pre_delete, sender=Conversation, dispatch_uid="memory.forget_conversation")
def forget_conversation(instance: Conversation, origin: Model | QuerySet[Any], **kwargs: Any) -> None:
    if instance.user_id is not None and not _deletes_a_person(origin):
        index.forget(Place(instance.user_id, Corpus.CHAT, instance.pk))
        _forget_attachments(instance.user_id, instance.pk, None)


@receiver(pre_delete, sender=MemoryDocument, dispatch_uid="memory.forget_document")
def forget_document(instance: MemoryDocument, origin: Model | QuerySet[Any], **kwargs: Any) -> None:
    if not _deletes_a_person(origin):
        index.forget(document_place(instance))
        withdraw_results(instance.user_id, instance.pk)


@receiver(pre_delete, sender=MemoryRecord, dispatch_uid="memory.forget_record")
def forget_record(instance: MemoryRecord, origin: Model | QuerySet[Any], **kwargs: Any) -> None:
    """In the middle of a chain, the newer record replaces the older one from now on."""
    if not _deletes_a_person(origin):
        older, instance.replaces = instance.replaces, None
        mine = MemoryRecord.objects.filter(user_id=instance.user_id)
        if mine.filter(replaces=instance.pk).exists():
            # Each record is replaced once.
            mine.filter(pk=instance.pk).update(replaces=None)
            mine.filter(replaces=instance.pk).update(replaces=older)
        index.forget(record_place(instance))
        withdraw_results(instance.user_id, instance.pk)
        idempotency.withdraw(user_id=instance.user_id, about=str(instance.pk))


@receiver(label_changed, dispatch_uid="memory.move_label")
def move_label(user: User, old: str, new: str, deletes: bool, **kwargs: Any) -> None:
    """The records and documents of a project follow its new name, or go with it."""
    mine, documents_of = MemoryRecord.objects.for_user(user), MemoryDocument.objects.for_user(user)
    proposed = Proposal.objects.for_user(user).filter(project_id=old)
    if not deletes:
        mine.filter(project_id=old).update(project_id=new)
        proposed.update(project_id=new)
        documents.move_label(user=user, old=old, new=new, now=timezone.now())
        return
    gone = mine.filter(project_id=old).delete()[1].get(MemoryRecord._meta.label, 0)
    gone += documents_of.filter(project=old).delete()[1].get(MemoryDocument._meta.label, 0)
    proposed.delete()
    if gone:
        activity.note(user, Activity.MEMORY_DELETED, count=gone)


def _deletes_a_person(origin: Model | QuerySet[Any]) -> bool:
    """All index rows of a user are deleted together with the user."""
    return _deleted(origin) is User


def _deleted(origin: Model | QuerySet[Any]) -> type[Model]:
    """The kind of the row or rows with which the deletion started."""
    return origin.model if isinstance(origin, QuerySet) else type(origin)


# Search would fail with another embedding model than the one that made the index. A web process or a worker that does
# not start reports it too.


HINT = (
    "Put the old values back, or name the new model in EMBEDDING_NEXT_…, start again, and run "
    "`manage.py switch_embedding_model`."
)


@register(Tags.database)
def check_embedding_model(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    tables = connections["default"].introspection.table_names() if "default" in (databases or ()) else []
    if EmbeddingModel._meta.db_table not in tables:
        return []
    try:
        require_active(*(embedder.name for embedder in configured_embedders()))
    except EmbedderError as error:
        return [Error(str(error), hint=HINT, id="memory.E001")]
    return []
