"""The API under /api/v1/: what each app offers, and the document that describes it."""

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from agent_tools.rest import tool_urls
from intake.views.chat import ChatView

urlpatterns = [
    path("intake/chat", ChatView.as_view(), name="chat"),
    path("", include("intake.rest.urls")),
    *tool_urls(),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
]
