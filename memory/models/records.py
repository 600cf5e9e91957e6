"""What a person or their agent notes one by one: a decision, a fact, a lesson, with what it belongs to."""

from typing import Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone

from core.ids import uuid7
from intake.models import User

# As much as the parts of one text hold, so that no end of a record goes without a vector.
MAX_RECORD_LENGTH = 32_000
MAX_LABEL_LENGTH = 100
MAX_PROJECT_LENGTH = 200
MAX_TAGS = 50


class MemoryRecordQuerySet(models.QuerySet["MemoryRecord"]):
    def for_user(self, user: User) -> Self:
        return self.filter(user=user)

    def newest_first(self) -> Self:
        return self.order_by("-created_at", "-id")


class MemoryRecord(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    content = models.TextField()
    type = models.CharField(max_length=MAX_LABEL_LENGTH, help_text="For example ARCHITECTURAL_DECISION.")
    project_id = models.CharField(max_length=MAX_PROJECT_LENGTH, blank=True, default="", help_text="Empty for none.")
    tags: "ArrayField[list[str], list[str]]" = ArrayField(
        models.CharField(max_length=MAX_LABEL_LENGTH), blank=True, default=list
    )
    created_at = models.DateTimeField(default=timezone.now)

    objects = MemoryRecordQuerySet.as_manager()

    class Meta:
        db_table = "memory_records"
        indexes = [
            models.Index(fields=["user", "created_at", "id"], name="idx_memory_records_recent"),
            models.Index(fields=["user", "type"], name="idx_memory_records_type"),
            models.Index(fields=["user", "project_id"], condition=~Q(project_id=""), name="idx_memory_records_project"),
        ]

    def __str__(self) -> str:
        return str(self.id)
