"""The models of accounts and chats: users, their conversations, and the turns in them."""

from intake.models.activity import Activity, ActivityEntry, ChatPreferences
from intake.models.conversations import Conversation, IdempotentAnswer, Turn
from intake.models.sessions import Session
from intake.models.users import Invitation, User, day_in_words, local_time

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
