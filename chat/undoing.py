"""Undoes a tool call of the chat's model: once, by the turn's owner; the turn records it."""

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction

from agent_tools.tools import registry
from core.errors import NotFound, StillRunning
from intake.models import Turn, User

NOT_WHILE_WRITTEN = "The answer is still being written. Undo it when it is done."


def undo_tool_call(
    *, user: User, conversation_id: UUID, turn_number: int, call_id: str, now: datetime
) -> dict[str, Any]:
    """The call with its `undone_at`; a second time changes nothing.

    Raises `NotFound` alike for a missing call, another user's, and one that stored nothing; `StillRunning` while the
    answer is being written; any error of the tool, for example `Conflict`, and then nothing has changed.
    """
    with transaction.atomic():
        # Locked, so that the second of two simultaneous requests finds it done.
        mine = Turn.objects.for_user(user).select_for_update()
        turn = mine.filter(conversation=conversation_id, turn_number=turn_number).first()
        call = None if turn is None else _call(turn, call_id)
        if turn is None or call is None:
            raise NotFound
        if "undone_at" in call:
            return call
        if not turn.has_ended:
            raise StillRunning(NOT_WHILE_WRITTEN)
        tool = registry.get(call["name"])
        if tool is None or tool.undo is None:
            raise NotFound
        tool.undo(tool.read(call["input"]), call["place"], user, now)
        call["undone_at"] = now.isoformat()
        turn.save(update_fields=["tool_calls", "updated_at"])
        return call


def _call(turn: Turn, call_id: str) -> dict[str, Any] | None:
    return next((call for call in turn.tool_calls if call["id"] == call_id and "place" in call), None)
