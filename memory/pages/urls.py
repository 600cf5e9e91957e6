"""The addresses of the memory pages."""

from django.urls import path

from memory.pages import documents, files, home, overview, projects, records, searching

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
    path("memory/files/", files.files, name="files"),
    path("memory/files/<str:file_id>/delete/", files.delete_file, name="delete_file"),
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
