"""The addresses of documents and records under `/api/v1/`."""

from typing import TYPE_CHECKING, Any

from django.urls import URLPattern, path

from memory.rest import documents, overview, records

if TYPE_CHECKING:
    from rest_framework.decorators import ViewSetAction

DOCUMENT: "dict[str, str | ViewSetAction[Any]] | None" = {"get": "retrieve", "put": "update", "delete": "destroy"}


def memory_urls() -> list[URLPattern]:
    return [
        path("memory/documents/memory/", documents.MemoryViewSet.as_view(DOCUMENT)),
        path("memory/documents/about/", documents.AboutViewSet.as_view(DOCUMENT)),
        path("memory/documents/memory/append/", documents.MemoryAppendViewSet.as_view({"post": "append"})),
        path("memory/documents/daily-logs/", documents.DailyLogListViewSet.as_view({"get": "look"})),
        # Any text, so that an invalid date gets this API's answer and not the framework's page.
        path("memory/documents/daily-logs/<str:date>/", documents.DailyLogViewSet.as_view(DOCUMENT)),
        path(
            "memory/documents/daily-logs/<str:date>/append/",
            documents.DailyLogAppendViewSet.as_view({"post": "append"}),
        ),
        path(
            "memory/documents/daily-logs/<str:date>/take-back/",
            documents.DailyLogTakeBackViewSet.as_view({"post": "take_back"}),
        ),
        path("memory/timeline/", overview.TimelineViewSet.as_view({"get": "retrieve"})),
        path("memory/timeline/<str:month>/", overview.MonthViewSet.as_view({"get": "retrieve"})),
        path("memory/map/", overview.MapViewSet.as_view({"get": "retrieve"})),
        path("memory/map/points/", overview.MapPointsViewSet.as_view({"get": "retrieve"})),
        path("memory/map/points/<str:text_id>/", overview.MapTextViewSet.as_view({"get": "retrieve"})),
        path("memory/records/", records.RecordListViewSet.as_view({"get": "look", "post": "create"})),
        path(
            "memory/records/<str:record_id>/",
            records.RecordViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        ),
    ]
