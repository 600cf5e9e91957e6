"""Where the pages of memory are."""

from django.urls import path

from memory.pages import documents, notes, overview, records, searching

app_name = "memory"

urlpatterns = [
    path("search/", searching.search, name="search"),
    path("search/live/", searching.search_live, name="search_live"),
    path("memory/", documents.edit_memory, name="memory"),
    path("memory/about/", documents.edit_about, name="about"),
    path("memory/timeline/", overview.timeline_page, name="timeline"),
    path("memory/timeline/<str:month>/", overview.month_page, name="month"),
    path("memory/map/", overview.map_page, name="map"),
    path("memory/map/texts/<str:text_id>/", overview.map_text, name="map_text"),
    path("memory/notes/", notes.notes, name="notes"),
    path("memory/notes/<str:note_id>/", notes.note, name="note"),
    path("memory/notes/<str:note_id>/delete/", notes.delete_note, name="delete_note"),
    path("memory/logs/", documents.logs, name="logs"),
    # Any text, so that what is no date, and a malformed id, get the same answer as what is not there.
    path("memory/logs/<str:date>/", documents.log, name="log"),
    path("memory/logs/<str:date>/edit/", documents.edit_log, name="edit_log"),
    path("memory/logs/<str:date>/delete/", documents.delete_log, name="delete_log"),
    path("memory/records/", records.records, name="records"),
    path("memory/records/<str:record_id>/", records.record, name="record"),
    path("memory/records/<str:record_id>/delete/", records.delete_record, name="delete_record"),
]
