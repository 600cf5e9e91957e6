"""The addresses of imports under `/api/v1/`."""

from django.urls import URLPattern, path

from imports import rest
from imports.rest import import_events


def import_urls() -> list[URLPattern]:
    return [
        path("imports/", rest.ImportsViewSet.as_view({"get": "look", "post": "create"}), name="imports"),
        # Any text, so that a malformed id gets the same answer as one that does not exist.
        path(
            "imports/<str:import_id>/",
            rest.ImportsViewSet.as_view({"get": "retrieve", "delete": "destroy"}),
            name="import",
        ),
        path(
            "imports/<str:import_id>/content/",
            rest.ImportsViewSet.as_view({"put": "upload"}, parser_classes=[rest.ChunkParser]),
            name="import_content",
        ),
        path("imports/<str:import_id>/preview/", rest.ImportsViewSet.as_view({"get": "preview"})),
        path("imports/<str:import_id>/start/", rest.ImportsViewSet.as_view({"post": "start"})),
        path("imports/<str:import_id>/cancel/", rest.ImportsViewSet.as_view({"post": "cancel"})),
        path("imports/<str:import_id>/undo/", rest.ImportsViewSet.as_view({"post": "undo"})),
        path("imports/<str:import_id>/events/", import_events),
        path(
            "sessions/append/",
            rest.ImportsViewSet.as_view(
                {"post": "append"}, required_scope=rest.CAPTURE_SCOPE, takes_agents=True, takes_bound=("POST",)
            ),
            name="append_session",
        ),
    ]
