"""The admin pages of the index: its rows, their health and their owners, never any text."""

from django.contrib import admin

from memory.admin.embeddings import EmbeddingAdmin, EmbeddingModelAdmin

__all__ = ["EmbeddingAdmin", "EmbeddingModelAdmin"]

admin.site.site_header = admin.site.site_title = "Recollect"
admin.site.index_title = "For staff"
# Django's own index, with a link to the index's health.
admin.site.index_template = "admin/memory/index.html"
