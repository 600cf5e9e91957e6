"""Addresses of what was said, in the one form that every answer, tool and page uses."""

from uuid import UUID

from django.urls import reverse


def turn_url(conversation_id: UUID, turn_number: int) -> str:
    """A path that shows the conversation around this turn, however long it is."""
    path = reverse("intake:conversation", args=[conversation_id])
    return f"{path}?turn={turn_number}#turn-{turn_number}"
