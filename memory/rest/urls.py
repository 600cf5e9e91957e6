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
        path("memory/documents/memory/append/", documents.MemoryViewSet.as_view({"post": "append"})),
        path("memory/documents/daily-logs/", documents.DailyLogViewSet.as_view({"get": "look"})),
        # Any text, so that an invalid date gets this API's answer and not the framework's page.
        path("memory/documents/daily-logs/<str:date>/", documents.DailyLogViewSet.as_view(DOCUMENT)),
        path(
            "memory/documents/daily-logs/<str:date>/append/",
            documents.DailyLogViewSet.as_view({"post": "append"}),
        ),
        path(
            "memory/documents/daily-logs/<str:date>/take-back/",
            documents.DailyLogTakeBackViewSet.as_view({"post": "take_back"}),
        ),
        path("memory/timeline/", overview.OverviewViewSet.as_view({"get": "timeline"})),
        path("memory/timeline/<str:month>/", overview.OverviewViewSet.as_view({"get": "month"})),
        path("memory/map/", overview.OverviewViewSet.as_view({"get": "map"})),
        path("memory/map/points/", overview.OverviewViewSet.as_view({"get": "points"})),
        path("memory/map/points/<str:text_id>/", overview.OverviewViewSet.as_view({"get": "text"})),
        path("memory/proposals/", records.RecordViewSet.as_view({"get": "look_at_proposals"})),
        path(
            "memory/proposals/<str:proposal_id>/decision/",
            records.RecordViewSet.as_view({"patch": "decide", "delete": "undecide"}),
        ),
        path("memory/records/", records.RecordViewSet.as_view({"get": "look", "post": "create"})),
        path(
            "memory/records/<str:record_id>/",
            records.RecordViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        ),
    ]
