"""The addresses of chats, of the account and of what is kept, under `/api/v1/`."""

from typing import TYPE_CHECKING, Any

from django.urls import path

from chat.rest import conversations, overview, projects, records
from chat.rest.account import AccountViewSet
from chat.rest.attachments import AttachmentsViewSet
from chat.rest.chat import answering, changed_chats, chat, decide_call, stop_turn, turn_events
from chat.rest.conversations import ConversationExportView
from chat.rest.documents import AboutViewSet, DailyLogTakeBackViewSet, DailyLogViewSet, MemoryViewSet

if TYPE_CHECKING:
    from rest_framework.decorators import ViewSetAction

DOCUMENT: "dict[str, str | ViewSetAction[Any]] | None" = {"get": "retrieve", "put": "update", "delete": "destroy"}

urlpatterns = [
    path("intake/chat", chat, name="chat"),
    path("intake/events", changed_chats, name="changes"),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path("intake/turns/<str:turn_id>/events", turn_events, name="turn_events"),
    path("intake/turns/<str:turn_id>/stop", stop_turn, name="stop_turn"),
    path("intake/turns/<str:turn_id>/approvals/<str:call_id>", decide_call, name="decide_call"),
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
    *conversations.api.urlpatterns,
    path("conversations/<str:conversation_id>/export/", ConversationExportView.as_view(), name="export_conversation"),
    *projects.api.urlpatterns,
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
    *overview.api.urlpatterns,
    *records.api.urlpatterns,
]
