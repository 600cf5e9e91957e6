"""The addresses of the pages about agents."""

from django.urls import path

from agent_tools import pages

app_name = "agent_tools"

urlpatterns = [
    path("tokens/", pages.tokens, name="tokens"),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path("tokens/<str:token_id>/revoke/", pages.revoke, name="revoke_token"),
    path("connections/<str:connection_id>/end/", pages.disconnect, name="end_connection"),
]
