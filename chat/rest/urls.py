"""The addresses of chats, of the account and of what is kept, under `/api/v1/`."""

from django.urls import path

from chat.rest import account, conversations, documents, overview, projects, records
from chat.rest.account import AccountExportView
from chat.rest.attachments import AttachmentsViewSet
from chat.rest.chat import answering, changed_chats, chat, decide_call, stop_turn, turn_events
from chat.rest.conversations import ConversationExportView

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
    path("account/export/", AccountExportView.as_view(), name="download_account"),
    *account.api.urlpatterns,
    *documents.api.urlpatterns,
    *overview.api.urlpatterns,
    *records.api.urlpatterns,
]
