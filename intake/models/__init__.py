"""The models of accounts and chats: users, their conversations, and the turns in them."""

from intake.models.activity import Activity, ActivityEntry
from intake.models.conversations import Conversation, Turn
from intake.models.idempotency import IdempotentAnswer
from intake.models.invitations import Invitation
from intake.models.preferences import ChatPreferences
from intake.models.sessions import Session
from intake.models.users import User, day_in_words, local_time

__all__ = [
    "Activity",
    "ActivityEntry",
    "ChatPreferences",
    "Conversation",
    "IdempotentAnswer",
    "Invitation",
    "Session",
    "Turn",
    "User",
    "day_in_words",
    "local_time",
]
