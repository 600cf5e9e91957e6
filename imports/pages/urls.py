"""The addresses of the import pages."""

from django.urls import path

from imports.pages import views

app_name = "imports"

urlpatterns = [
    path("import/", views.home, name="home"),
    # Any text, so that a malformed id gets the same answer as one that does not exist.
    path("import/<str:import_id>/", views.one, name="one"),
]
