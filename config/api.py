"""The URLs of the API under /api/v1/: the endpoints of each app, and the OpenAPI document."""

from django.urls import include, path

from agent_tools.rest.urls import token_urls, tool_urls
from config.api_document import ApiDocumentView
from imports.rest.urls import import_urls
from intake.views.answers import AnsweringView, EventsView, StopView
from intake.views.chat import ChatView
from intake.views.events import ChangesView
from memory.rest import memory_urls

# Agents' calls first: they are the most frequent, and paths are matched from the top.
urlpatterns = [
    *tool_urls(),
    path("intake/chat", ChatView.as_view(), name="chat"),
    path("intake/events", ChangesView.as_view(), name="changes"),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path("intake/turns/<str:turn_id>/events", EventsView.as_view(), name="turn_events"),
    path("intake/turns/<str:turn_id>/stop", StopView.as_view(), name="stop_turn"),
    path("intake/answering", AnsweringView.as_view(), name="answering"),
    path("", include("intake.rest.urls")),
    *token_urls(),
    *memory_urls(),
    *import_urls(),
    path("schema/", ApiDocumentView.as_view(), name="schema"),
]
