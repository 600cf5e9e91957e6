"""`manage.py verify_backup FILE`: checks that a backup is complete, and that this product contains its data."""

from argparse import ArgumentParser
from typing import Any

from django.core.management import BaseCommand, CommandError

from config.ops import comparison
from config.ops.backup_file import opened, read_manifest


class Command(BaseCommand):
    help = (
        "Check every part of FILE by its hash, compare this product's rows with it table by table, and search once for "
        "each user. Meant for a product that was just restored; --file-only checks the file alone."
    )
    # They import every page and tool, which takes longer than the command; the web process runs them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file")
        parser.add_argument("--file-only", action="store_true", help="do not compare it with this product")

    def handle(self, *args: Any, **options: Any) -> None:
        with opened(options["file"]) as file:
            manifest = read_manifest(file)
        complaints: list[str] = []
        notes: list[str] = []
        if not options["file_only"]:
            complaints += [*comparison.differences(manifest), *comparison.failing_searches()]
            notes += comparison.compared_by_number(manifest)
            # Defaults of settings belong to a version.
            (notes if notes else complaints).extend(comparison.changed_settings(manifest))
        notes += comparison.about_the_key(manifest, counts=not options["file_only"])
        for note in notes:
            self.stdout.write(note)
        if complaints:
            raise CommandError("\n".join(complaints))
        self.stdout.write(
            f"Whole: {comparison.total_rows(manifest):,} rows in {len(manifest['tables'])} tables"
            + ("." if options["file_only"] else ", all of them here, and every user's search finds what it should.")
        )
