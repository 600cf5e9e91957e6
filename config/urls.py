"""The map of the house: pages, the API under /api/v1/, the admin."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver

urlpatterns: list[URLPattern | URLResolver] = []
admin.site.site_header = "Recollect"
