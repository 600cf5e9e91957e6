"""The API under /api/v1/: what each app offers, and the document that describes it."""

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from agent_tools.rest.urls import token_urls, tool_urls
from intake.views.chat import ChatView
from intake.views.events import EventsView
from memory.rest import memory_urls

# Agents' calls first: they are the most, and a path is looked for from the top.
urlpatterns = [
    *tool_urls(),
    path("intake/chat", ChatView.as_view(), name="chat"),
    path("intake/events", EventsView.as_view(), name="events"),
    path("", include("intake.rest.urls")),
    *token_urls(),
    *memory_urls(),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
]
