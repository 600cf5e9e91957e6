"""Temporary chats: kept on request, otherwise removed when the user leaves or their time is over."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from core.errors import InvalidInput, NotFound
from core.isolation.acting import Caller, project_for
from core.text import LONGEST_PROJECT, Sentence, gettext_noop, project_label
from core.validation import checked
from intake.attachments import services as attachments
from intake.chats import changes, deleting
from intake.chats.services import NO_NAME, lock_conversation
from intake.models import Conversation, Turn, User
from intake.models.conversations import label_of

# They are never indexed (`Turn.is_temporary`) and never listed (`ConversationQuerySet.kept`).

# The database deletes the turns by cascade; no index contains them. A worker sees no other conversations.
_REMOVE_EXPIRED = "DELETE FROM intake_conversations WHERE user_id = %s AND id = ANY(%s) AND expires_at < %s"


def keep(*, caller: Caller, conversation_id: UUID) -> None:
    """Turn a temporary chat into a normal one; harmless if it is one. Raises `NotFound`."""
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        if conversation.expires_at is None:
            return
        conversation.expires_at = None
        conversation.save(update_fields=["expires_at"])
        # Saved one by one, so that the index gets a signal for each. The lock waits for an answer that is being saved.
        mine = Turn.objects.for_caller(caller).filter(conversation=conversation)
        for turn in mine.select_for_update().order_by("pk"):
            turn.is_temporary = False
            turn.save(update_fields=["is_temporary"])
        changes.tell(caller, conversation_id)


def leave(*, caller: Caller, conversation_id: UUID) -> None:
    """Remove a temporary chat. Raises `NotFound` for any other chat, so that no other can be removed this way."""
    with transaction.atomic():
        if lock_conversation(caller, conversation_id).expires_at is None:
            raise NotFound
        deleting.delete_conversation(caller=caller, conversation_id=conversation_id)


def remove_expired(*, now: datetime) -> int:
    """Remove them with their files, as a worker; returns the number of removed chats."""
    due = Conversation.objects.filter(expires_at__lt=now).order_by("expires_at")
    by_user: dict[int | None, list[UUID]] = defaultdict(list)
    # The limit of one run.
    for user_id, conversation_id in due.values_list("user_id", "id")[:1_000]:
        by_user[user_id].append(conversation_id)
    removed = 0
    for owner, ids in by_user.items():
        with transaction.atomic(), connection.cursor() as cursor:
            contents = attachments.contents_of(owner, ids)
            cursor.execute(_REMOVE_EXPIRED, [owner, ids, now])
            removed += int(cursor.rowcount)
            attachments.release(owner, contents)
    return removed


# The most chats that one request moves.
MOST_MOVED = 100


def move(*, caller: Caller, conversation_ids: Collection[UUID], project: str) -> None:
    """Move chats to a project, which needs no row; empty: to none.

    Raises `NotFound`, and changes nothing, if one of them is not the caller's.
    """
    label = project and project_name(project)
    if not 1 <= len(conversation_ids) <= MOST_MOVED:
        most = Sentence(gettext_noop("1 to %(most)s at once."), most=MOST_MOVED)
        raise InvalidInput(gettext_noop("Choose some chats."), errors={"conversations": [most]})
    with transaction.atomic():
        mine = Conversation.objects.for_caller(caller).filter(pk__in=conversation_ids)
        if mine.update(project=label) != len(set(conversation_ids)):
            raise NotFound
        changes.tell(caller, *conversation_ids)


def project_named(name: str, *, user: User, field: str = "project") -> str:
    """The label of the project that a caller names, maybe by a folder or repository that belongs to it.

    Raises `InvalidInput` for what can be no name.
    """
    named = checked(name, field=field, max_length=LONGEST_PROJECT, may_be_blank=True)
    # A name such as a backslash alone is no folder, and is not dropped.
    label = project_label(named) or named.strip()
    if label.startswith("-"):
        raise InvalidInput(errors={field: [NO_NAME]})
    return project_for(user, label_of(user=user, label=label))


def project_name(name: str) -> str:
    label = project_label(name)
    # A hyphen in front means "everything but it" in searches.
    if not label or label.startswith("-"):
        raise InvalidInput(errors={"name": [NO_NAME]})
    if len(" ".join(name.split())) > LONGEST_PROJECT and len(label) == LONGEST_PROJECT:
        message = gettext_noop("At most %(count)s characters.")
        raise InvalidInput(errors={"name": [Sentence(message, count=LONGEST_PROJECT)]})
    return label
