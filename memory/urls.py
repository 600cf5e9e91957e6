"""The addresses of the memory pages, and those of documents and records under `/api/v1/`."""

from typing import TYPE_CHECKING, Any

from django.urls import URLPattern, path

from memory.pages import documents, home, overview, projects, records, searching
from memory.rest.documents import AboutViewSet, DailyLogTakeBackViewSet, DailyLogViewSet, MemoryViewSet
from memory.rest.overview import OverviewViewSet
from memory.rest.records import RecordViewSet

if TYPE_CHECKING:
    from rest_framework.decorators import ViewSetAction

app_name = "memory"

urlpatterns = [
    path("search/", searching.search, name="search"),
    path("search/live/", searching.search_live, name="search_live"),
    path("year/", home.year_page, name="year"),
    path("projects/", projects.list_all, name="projects"),
    # Any text, so that a malformed name gets the same answer as one that does not exist.
    path("projects/<str:key>/", projects.project, name="project"),
    path("projects/<str:key>/edit/", projects.edit_project, name="edit_project"),
    path("projects/<str:key>/delete/", projects.delete_project, name="delete_project"),
    path("memory/", documents.memory, name="memory"),
    path("memory/edit/", documents.edit_memory, name="edit_memory"),
    path("memory/history/", documents.memory_history, name="history_memory"),
    path("memory/about/", documents.about, name="about"),
    path("memory/about/edit/", documents.edit_about, name="edit_about"),
    path("memory/about/history/", documents.about_history, name="history_about"),
    path("memory/timeline/", overview.timeline_page, name="timeline"),
    path("memory/timeline/<str:month>/", overview.month_page, name="month"),
    path("memory/map/", overview.map_page, name="map"),
    path("memory/map/found/", overview.map_found, name="map_found"),
    path("memory/map/names/", overview.map_names, name="map_names"),
    path("memory/map/texts/<str:text_id>/", overview.map_text, name="map_text"),
    path("memory/notes/", documents.notes, name="notes"),
    path("memory/notes/<str:note_id>/", documents.note, name="note"),
    path("memory/notes/<str:note_id>/delete/", documents.delete_note, name="delete_note"),
    path("memory/files/", documents.files, name="files"),
    path("memory/files/<str:file_id>/delete/", documents.delete_file, name="delete_file"),
    path("memory/logs/", documents.logs, name="logs"),
    # Any text, so that an invalid date or a malformed id gets the same answer as one that does not exist.
    path("memory/logs/<str:date>/", documents.log, name="log"),
    path("memory/logs/<str:date>/edit/", documents.edit_log, name="edit_log"),
    path("memory/logs/<str:date>/history/", documents.log_history, name="history_log"),
    path("memory/logs/<str:date>/move/", documents.move_log, name="move_log"),
    path("memory/logs/<str:date>/delete/", documents.delete_log, name="delete_log"),
    path("memory/preview/", records.preview, name="preview"),
    path("memory/proposals/", records.proposed, name="proposals"),
    path("memory/records/", records.kept, name="records"),
    path("memory/records/<str:record_id>/", records.record, name="record"),
    path("memory/records/<str:record_id>/edit/", records.edit_record, name="edit_record"),
    path("memory/records/<str:record_id>/replace/", records.replace_record, name="replace_record"),
    path("memory/records/<str:record_id>/tick/", records.tick_record, name="tick_record"),
    path("memory/records/<str:record_id>/bring-back/", records.bring_back_record, name="bring_back_record"),
    path("memory/records/<str:record_id>/delete/", records.delete_record, name="delete_record"),
]

DOCUMENT: "dict[str, str | ViewSetAction[Any]] | None" = {"get": "retrieve", "put": "update", "delete": "destroy"}


def memory_urls() -> list[URLPattern]:
    return [
        path("memory/documents/memory/", MemoryViewSet.as_view(DOCUMENT)),
        path("memory/documents/about/", AboutViewSet.as_view(DOCUMENT)),
        path("memory/documents/memory/append/", MemoryViewSet.as_view({"post": "append"})),
        path("memory/documents/daily-logs/", DailyLogViewSet.as_view({"get": "look"})),
        # Any text, so that an invalid date gets this API's answer and not the framework's page.
        path("memory/documents/daily-logs/<str:date>/", DailyLogViewSet.as_view(DOCUMENT)),
        path(
            "memory/documents/daily-logs/<str:date>/append/",
            DailyLogViewSet.as_view({"post": "append"}),
        ),
        path(
            "memory/documents/daily-logs/<str:date>/take-back/",
            DailyLogTakeBackViewSet.as_view({"post": "take_back"}),
        ),
        path("memory/timeline/", OverviewViewSet.as_view({"get": "timeline"})),
        path("memory/timeline/<str:month>/", OverviewViewSet.as_view({"get": "month"})),
        path("memory/map/", OverviewViewSet.as_view({"get": "map"})),
        path("memory/map/points/", OverviewViewSet.as_view({"get": "points"})),
        path("memory/map/points/<str:text_id>/", OverviewViewSet.as_view({"get": "text"})),
        path("memory/proposals/", RecordViewSet.as_view({"get": "look_at_proposals"})),
        path(
            "memory/proposals/<str:proposal_id>/decision/",
            RecordViewSet.as_view({"patch": "decide", "delete": "undecide"}),
        ),
        path("memory/records/", RecordViewSet.as_view({"get": "look", "post": "create"})),
        path(
            "memory/records/<str:record_id>/",
            RecordViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        ),
    ]
