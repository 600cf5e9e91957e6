"""Temporary chats: kept if somebody wants so, otherwise removed when they are left or their time is over.

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

# Those of one run, so that no transaction grows without bounds. The turns go with them in the database, and stand in no
# index. A worker sees no other conversations.
_REMOVE_EXPIRED = """
DELETE FROM intake_conversations WHERE id IN (
    SELECT id FROM intake_conversations WHERE expires_at < %(now)s ORDER BY expires_at LIMIT 1000
)
"""


def keep(*, caller: Caller, conversation_id: UUID) -> None:
    """Make a temporary chat one like any other; harmless for one that is. Raises `NotFound`."""
    with transaction.atomic():
        conversation = lock_conversation(caller, conversation_id)
        if conversation.expires_at is None:
            return
        conversation.expires_at = None
        conversation.save(update_fields=["expires_at"])
        # Saved one by one, so that memory hears of each. The lock waits for an answer that is being saved.
        mine = Turn.objects.for_caller(caller).filter(conversation=conversation)
        for turn in mine.select_for_update().order_by("pk"):
            turn.is_temporary = False
            turn.save(update_fields=["is_temporary"])
        changes.tell(caller, conversation_id)


def leave(*, caller: Caller, conversation_id: UUID) -> None:
    """Remove a temporary chat. Raises `NotFound` for any other, so that nothing else goes this way."""
    with transaction.atomic():
        if lock_conversation(caller, conversation_id).expires_at is None:
            raise NotFound
        deleting.delete_conversation(caller=caller, conversation_id=conversation_id)


def remove_expired(*, now: datetime) -> int:
    """Returns how many were removed."""
    with connection.cursor() as cursor:
        cursor.execute(_REMOVE_EXPIRED, {"now": now})
        return int(cursor.rowcount)
