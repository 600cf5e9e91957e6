"""`manage.py index_missing`: queue every turn that the current embedding model has no rows for."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from memory import indexing


class Command(BaseCommand):
    help = (
        "Queue what the current embedding model has never seen: turns that found their owner in a migration, that were "
        "saved while the model could not be loaded, or everything after the model has changed. Safe to repeat."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        queued = indexing.enqueue_missing(now=timezone.now())
        self.stdout.write(f"Queued {queued} turns. Workers embed them in the background.")
