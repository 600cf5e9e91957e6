"""What memory tells the chat besides its tools, by the dotted paths in the settings."""

from intake.models import User
from memory import documents
from memory.embedders import get_embedder
from memory.embedders.base import UNCALIBRATED


def notes(user: User, *, length: int) -> str:
    """`settings.CHAT_NOTES`: the beginning of the person's MEMORY.md, at most `length` characters."""
    return documents.beginning(user=user, day=None, length=length)


def far_distance() -> float:
    """`settings.CHAT_FAR_DISTANCE`: beyond it a match is mostly chance."""
    return (get_embedder().calibration or UNCALIBRATED).far
