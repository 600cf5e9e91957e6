"""The models that made vectors: looked at, and changed by configuration only."""

from django.contrib import admin

from memory.admin.read_only import ReadOnlyAdmin
from memory.models import EmbeddingModel


@admin.register(EmbeddingModel)
class EmbeddingModelAdmin(ReadOnlyAdmin):
    list_display = ("name", "dimensions", "created_at", "activated_at")
    fields = ("name", "dimensions", "created_at", "activated_at")
    ordering = ("-id",)
