"""Addresses that people and agents follow: a conversation, or one turn in it."""

from functools import cache
from urllib.parse import quote
from uuid import UUID

from django.urls import get_script_prefix, reverse

from intake.models import Turn

_AN_ID = "CONVERSATION"


def conversation_path(conversation_id: UUID | str, *, turn_number: int | None = None, words: str = "") -> str:
    """Where a conversation is read; with a turn, scrolled to it, and with some of its words, to these.

    The query makes the server include the turn, however long ago it was; the fragment makes the browser go there. A
    browser's own text fragments (`:~:text=`) would go to the first turn with the words, and not by a script.
    """
    path = _path_of_one(get_script_prefix()).replace(_AN_ID, quote(str(conversation_id), safe=""))
    at = f"&at={quote(words, safe='')}" if words else ""
    return path if turn_number is None else f"{path}?turn={turn_number}{at}#turn-{turn_number}"


def undo_path(conversation_id: UUID | str, *, turn_number: int, call_id: str) -> str:
    """Where to post for what a tool call of a turn stored to be taken back."""
    return reverse("undo_tool_call", args=[conversation_id, turn_number, call_id])


def branch_path(turn: Turn) -> str:
    """Where to post for a new conversation that goes on from a turn."""
    return reverse("branch_conversation", args=[turn.conversation_id, turn.turn_number])


# Pages and results bear dozens of these addresses, which differ in the id alone.
@cache
def _path_of_one(script_prefix: str) -> str:
    return reverse("intake:conversation", args=[_AN_ID])
