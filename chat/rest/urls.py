"""The addresses of chats, of the account and of what is kept, under `/api/v1/`."""

from typing import TYPE_CHECKING, Any

from django.urls import path

from chat.rest.account import AccountViewSet
from chat.rest.attachments import AttachmentsViewSet
from chat.rest.chat import answering, changed_chats, chat, stop_turn, turn_events
from chat.rest.conversations import (
    ConversationExportView,
    ConversationViewSet,
    ToolCallViewSet,
    TurnViewSet,
)
from chat.rest.documents import AboutViewSet, DailyLogTakeBackViewSet, DailyLogViewSet, MemoryViewSet
from chat.rest.overview import OverviewViewSet
from chat.rest.projects import ProjectViewSet
from chat.rest.records import RecordViewSet

if TYPE_CHECKING:
    from rest_framework.decorators import ViewSetAction

DOCUMENT: "dict[str, str | ViewSetAction[Any]] | None" = {"get": "retrieve", "put": "update", "delete": "destroy"}

urlpatterns = [
    path("intake/chat", chat, name="chat"),
    path("intake/events", changed_chats, name="changes"),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path("intake/turns/<str:turn_id>/events", turn_events, name="turn_events"),
    path("intake/turns/<str:turn_id>/stop", stop_turn, name="stop_turn"),
    path("intake/answering", answering, name="answering"),
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
    path("memory/documents/memory/", MemoryViewSet.as_view(DOCUMENT)),
    path("memory/documents/about/", AboutViewSet.as_view(DOCUMENT)),
    path("memory/documents/memory/append/", MemoryViewSet.as_view({"post": "append"})),
    path("memory/documents/daily-logs/", DailyLogViewSet.as_view({"get": "look"})),
    # Any text, so that an invalid date gets this API's answer and not the framework's page.
    path("memory/documents/daily-logs/<str:date>/", DailyLogViewSet.as_view(DOCUMENT)),
    path(
        "memory/documents/daily-logs/<str:date>/append/",
        DailyLogViewSet.as_view({"post": "append"}),
    ),
    path(
        "memory/documents/daily-logs/<str:date>/take-back/",
        DailyLogTakeBackViewSet.as_view({"post": "take_back"}),
    ),
    path("memory/timeline/", OverviewViewSet.as_view({"get": "timeline"})),
    path("memory/timeline/<str:month>/", OverviewViewSet.as_view({"get": "month"})),
    path("memory/map/", OverviewViewSet.as_view({"get": "map"})),
    path("memory/map/points/", OverviewViewSet.as_view({"get": "points"})),
    path("memory/map/points/<str:text_id>/", OverviewViewSet.as_view({"get": "text"})),
    path("memory/proposals/", RecordViewSet.as_view({"get": "look_at_proposals"})),
    path(
        "memory/proposals/<str:proposal_id>/decision/",
        RecordViewSet.as_view({"patch": "decide", "delete": "undecide"}),
    ),
    path("memory/records/", RecordViewSet.as_view({"get": "look", "post": "create"})),
    path(
        "memory/records/<str:record_id>/",
        RecordViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
    ),
]
