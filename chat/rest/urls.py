"""The addresses of chats, of the account and of what is kept, under `/api/v1/`."""

from django.urls import path

from chat.rest import account, attachments, conversations, documents, overview, projects, records
from chat.rest.chat import answering, changed_chats, chat, decide_call, stop_turn, turn_events

urlpatterns = [
    path("intake/chat", chat, name="chat"),
    path("intake/events", changed_chats, name="changes"),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path("intake/turns/<str:turn_id>/events", turn_events, name="turn_events"),
    path("intake/turns/<str:turn_id>/stop", stop_turn, name="stop_turn"),
    path("intake/turns/<str:turn_id>/approvals/<str:call_id>", decide_call, name="decide_call"),
    path("intake/answering", answering, name="answering"),
    *attachments.api.urlpatterns,
    *conversations.api.urlpatterns,
    *conversations.downloads.urlpatterns,
    *projects.api.urlpatterns,
    *account.api.urlpatterns,
    *documents.api.urlpatterns,
    *overview.api.urlpatterns,
    *records.api.urlpatterns,
]
