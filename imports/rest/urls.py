"""The addresses of imports under `/api/v1/`."""

from django.urls import URLPattern, path

from imports.rest import views
from imports.rest.events import ImportEventsView


def import_urls() -> list[URLPattern]:
    return [
        path("imports/", views.ImportListViewSet.as_view({"get": "look", "post": "create"}), name="imports"),
        # Any text, so that a malformed id gets the same answer as one that does not exist.
        path(
            "imports/<str:import_id>/",
            views.ImportViewSet.as_view({"get": "retrieve", "delete": "destroy"}),
            name="import",
        ),
        path(
            "imports/<str:import_id>/content/",
            views.ImportContentViewSet.as_view({"put": "put"}),
            name="import_content",
        ),
        path("imports/<str:import_id>/preview/", views.ImportPreviewViewSet.as_view({"get": "look"})),
        path("imports/<str:import_id>/start/", views.ImportStartViewSet.as_view({"post": "start"})),
        path("imports/<str:import_id>/cancel/", views.ImportCancelViewSet.as_view({"post": "cancel"})),
        path("imports/<str:import_id>/undo/", views.ImportUndoViewSet.as_view({"post": "undo"})),
        path("imports/<str:import_id>/events/", ImportEventsView.as_view()),
    ]
