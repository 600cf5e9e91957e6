"""The addresses of intake under `/api/v1/`."""

from django.urls import path

from intake.rest.account import AccountExportView, AccountView, ModelListView
from intake.rest.conversations import (
    BranchView,
    ChooseVersionView,
    ConversationExportView,
    ConversationListView,
    ConversationView,
    ToolCallUndoView,
    TurnView,
)

urlpatterns = [
    path("conversations/", ConversationListView.as_view()),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path("conversations/<str:conversation_id>/", ConversationView.as_view()),
    path("conversations/<str:conversation_id>/export/", ConversationExportView.as_view(), name="export_conversation"),
    path("conversations/<str:conversation_id>/turns/<str:turn_number>/", TurnView.as_view()),
    path(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/choose/",
        ChooseVersionView.as_view(),
        name="choose_version",
    ),
    path(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/branch/",
        BranchView.as_view(),
        name="branch_conversation",
    ),
    path(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/tool-calls/<str:call_id>/undo/",
        ToolCallUndoView.as_view(),
        name="undo_tool_call",
    ),
    path("models/", ModelListView.as_view()),
    path("account/export/", AccountExportView.as_view(), name="download_account"),
    path("account/", AccountView.as_view()),
]
