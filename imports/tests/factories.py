"""Imports as rows alone, for tests that need one to be there."""

from uuid import UUID

from core.isolation.acting import acting_as
from imports.models import Import, ImportedItem, ImportEntry
from imports.storing import queue
from intake.models import User
from intake.tests.factories import NOW


def an_import(user: User, *, state: str = "done", word: str = "x", conversation_id: UUID | None = None) -> str:
    """With a line in its preview, and a conversation that it brought once it is done. Returns its id."""
    with acting_as(user):
        batch = Import.objects.create(
            user=user, filename=f"{word}.zip", bytes=2, state=state, stored={"turns": 1}, created_at=NOW, updated_at=NOW
        )
        ImportEntry.objects.create(
            user=user, batch=batch, kind="conversation", external_id="1", title=f"About {word}", status="new"
        )
        if state == "done":
            ImportedItem.objects.create(
                user=user, batch=batch, kind="turn", key=b"key", content_hash=b"hash", conversation_id=conversation_id
            )
        queue.due_at(batch, NOW)
    return str(batch.pk)
