"""Temporary chats: kept on request, otherwise removed when the user leaves or their time is over.

They are never indexed (`Turn.is_temporary`) and never listed (`ConversationQuerySet.kept`).
"""

from datetime import datetime
from uuid import UUID

from django.db import connection, transaction

from core.errors import NotFound
from core.isolation.caller import Caller
from intake import changes, deleting
from intake.models import Turn
from intake.services import lock_conversation

# The limit of one run, so that no transaction grows without bounds. The database deletes the turns by cascade; no index
# contains them. A worker sees no other conversations.
_REMOVE_EXPIRED = """
DELETE FROM intake_conversations WHERE id IN (
    SELECT id FROM intake_conversations WHERE expires_at < %(now)s ORDER BY expires_at LIMIT 1000
)
"""


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
    """Returns the number of removed chats."""
    with connection.cursor() as cursor:
        cursor.execute(_REMOVE_EXPIRED, {"now": now})
        return int(cursor.rowcount)
