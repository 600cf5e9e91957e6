"""`manage.py index_missing`: indexes every text without terms, or without rows of the embedding model."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from core.isolation.connecting import connected_as_worker
from memory import index


class Command(BaseCommand):
    help = (
        "Index what the current settings have never seen: turns that found their owner in a migration, that were saved "
        "while the model could not be loaded, or everything after the embedding model, the text-search configuration "
        "or the rules by which texts are cut into passages or become terms have changed. Words can "
        "be searched at once; vectors are queued. Safe to repeat."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        # It reads all users' texts, so it runs as a worker.
        with connected_as_worker():
            indexed = index.enqueue_missing(now=timezone.now())
        self.stdout.write(f"Indexed {indexed} turns, documents and records. Workers embed them in the background.")
