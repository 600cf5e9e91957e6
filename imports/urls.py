"""The addresses of imports under `/api/v1/`."""

from django.urls import URLPattern, path

from imports.events import import_events
from imports.rest import api


def import_urls() -> list[URLPattern]:
    return [*api.urlpatterns, path("imports/<str:import_id>/events/", import_events)]
