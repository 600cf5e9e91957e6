"""The models of accounts and chats: users, their conversations, the turns in them, and the files of the turns."""

from intake.models.activity import Activity, ActivityEntry, ChatPreferences
from intake.models.answers import IdempotentAnswer, KnownAnswer
from intake.models.attachments import Attachment, AttachmentPiece, AttachmentText
from intake.models.conversations import Conversation, Project, Turn
from intake.models.installation import InstallationSetting
from intake.models.invitations import Invitation
from intake.models.sessions import Session
from intake.models.tools import PausedTurn, ToolConsent, ToolLogin, ToolServer
from intake.models.users import User, day_in_words, local_time

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
    "KnownAnswer",
    "PausedTurn",
    "Project",
    "Session",
    "ToolConsent",
    "ToolLogin",
    "ToolServer",
    "Turn",
    "User",
    "day_in_words",
    "local_time",
]
