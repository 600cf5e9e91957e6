"""The models of accounts and chats: users, their conversations, the turns in them, and the files of the turns."""

from intake.models.activity import Activity, ActivityEntry, ChatPreferences
from intake.models.attachments import Attachment, AttachmentPiece, AttachmentText
from intake.models.conversations import Conversation, IdempotentAnswer, Project, Turn
from intake.models.sessions import Session
from intake.models.users import InstallationSetting, Invitation, User, day_in_words, local_time

__all__ = [
    "Activity",
    "ActivityEntry",
    "Attachment",
    "AttachmentPiece",
    "AttachmentText",
    "ChatPreferences",
    "Conversation",
    "IdempotentAnswer",
    "InstallationSetting",
    "Invitation",
    "Project",
    "Session",
    "Turn",
    "User",
    "day_in_words",
    "local_time",
]
