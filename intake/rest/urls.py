"""The addresses of intake under `/api/v1/`."""

from django.urls import path

from intake.rest.account import AccountViewSet
from intake.rest.attachments import AttachmentsViewSet
from intake.rest.conversations import (
    ConversationExportView,
    ConversationViewSet,
    ProjectViewSet,
    ToolCallViewSet,
    TurnViewSet,
)

urlpatterns = [
    path("attachments/", AttachmentsViewSet.as_view({"post": "create"}), name="attachments"),
    path("attachments/<str:attachment_id>/", AttachmentsViewSet.as_view({"get": "retrieve", "delete": "destroy"})),
    path(
        "attachments/<str:attachment_id>/content",
        AttachmentsViewSet.as_view({"get": "content"}),
        name="attachment_content",
    ),
    path(
        "attachments/<str:attachment_id>/thumbnail",
        AttachmentsViewSet.as_view({"get": "thumbnail"}),
        name="attachment_thumbnail",
    ),
    path("conversations/", ConversationViewSet.as_view({"get": "look"})),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path(
        "conversations/<str:conversation_id>/",
        ConversationViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
    ),
    path("conversations/<str:conversation_id>/export/", ConversationExportView.as_view(), name="export_conversation"),
    path(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/",
        TurnViewSet.as_view({"get": "retrieve", "delete": "destroy"}),
    ),
    path(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/choose/",
        TurnViewSet.as_view({"post": "choose"}),
        name="choose_version",
    ),
    path(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/branch/",
        TurnViewSet.as_view({"post": "branch"}),
        name="branch_conversation",
    ),
    path(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/tool-calls/<str:call_id>/undo/",
        ToolCallViewSet.as_view({"post": "undo"}),
        name="undo_tool_call",
    ),
    path("projects/", ProjectViewSet.as_view({"get": "look", "post": "create"})),
    path("projects/move/", ProjectViewSet.as_view({"post": "move"}), name="move_conversations"),
    path("projects/<str:project_id>/", ProjectViewSet.as_view({"patch": "partial_update", "delete": "destroy"})),
    path("models/", AccountViewSet.as_view({"get": "models"})),
    path("account/export/", AccountViewSet.as_view({"get": "export"}), name="download_account"),
    path("account/", AccountViewSet.as_view({"delete": "destroy"})),
]
