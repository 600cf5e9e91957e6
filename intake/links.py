"""Addresses that people and agents follow: a conversation, or one turn in it."""

from uuid import UUID

from django.urls import reverse


def conversation_path(conversation_id: UUID | str, *, turn_number: int | None = None) -> str:
    """Where a conversation is read; with a turn, scrolled to it.

    The query makes the server include the turn, however long ago it was; the fragment makes the browser go there.
    """
    path = reverse("intake:conversation", args=[conversation_id])
    return path if turn_number is None else f"{path}?turn={turn_number}#turn-{turn_number}"


def undo_path(conversation_id: UUID | str, *, turn_number: int, call_id: str) -> str:
    """Where to post for what a tool call of a turn stored to be taken back."""
    return reverse("undo_tool_call", args=[conversation_id, turn_number, call_id])
