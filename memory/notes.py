"""What the chat's model is given along unasked: the beginning of the person's MEMORY.md."""

from intake.models import User
from memory import documents


def notes(user: User, *, length: int) -> str:
    """What `settings.CHAT_NOTES` names: at most `length` characters."""
    return documents.beginning(user=user, day=None, length=length)
