"""`manage.py record_migrations`: freezes new migrations by recording their hashes."""

from typing import Any

from django.core.management import BaseCommand

from core.isolation.fitting import record_new_migrations


class Command(BaseCommand):
    help = "Record the hashes of new migrations. Recorded ones are frozen: their hashes stay as they are."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        new = record_new_migrations()
        self.stdout.write("\n".join(new) if new else "No migration is new.")
