"""`manage.py restore FILE`: restores a backup into an empty product, verified before and compared after."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import BaseCommand, CommandError, call_command
from django.db import connection, connections

from config.ops import backup, comparison
from config.ops.backup_file import opened, read_dump, read_manifest
from core.isolation.acting import is_cluster
from core.isolation.connecting import connected_as_owner
from core.isolation.fitting import migration_hashes
from intake.models import User


class Command(BaseCommand):
    help = (
        "Restore FILE (- is standard input), written by `manage.py backup`, into a product without users. "
        "Checks the whole file before it changes anything, and compares everything after."
    )
    # The backup contains the tables that the checks need.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with opened(options["file"]) as file:
                manifest = read_manifest(file)
                _refuse_unless_fitting(manifest)
                backup.restore(manifest, read_dump(file))
            complaints = [
                *comparison.differences(manifest, was_just_restored=True),
                *comparison.changed_settings(manifest),
            ]
            # A backup of an earlier version gets the later migrations.
            call_command("migrate", verbosity=0, interactive=False)
            if is_cluster(connection):
                # It came to the coordinator.
                call_command("distribute", verbosity=0)
        finally:
            connections.close_all()
        for note in comparison.about_the_key(manifest):
            self.stdout.write(note)
        if complaints:
            raise CommandError("Not everything is as it was in the backup:\n" + "\n".join(complaints))
        self.stdout.write(
            f"Restored {comparison.total_rows(manifest):,} rows of {manifest['made_at']}; all compared equal."
        )


def _refuse_unless_fitting(manifest: dict[str, Any]) -> None:
    try:
        # Another key can be put right afterwards, and is named then; without one nothing can be compared.
        bool(settings.SECRET_KEY)
    except ImproperlyConfigured:
        raise CommandError(
            "SECRET_KEY is not set for this command, and nothing was restored. Give it the key with which this product "
            "was started: SECRET_KEY=… manage.py restore FILE."
        ) from None
    prefix = settings.DATABASE_ROLES.prefix
    if manifest.get("roles_prefix") != prefix:
        raise CommandError(
            f"The backup belongs to roles named {manifest.get('roles_prefix')}_…, and here they are {prefix}_…: set "
            "DATABASE_ROLE_PREFIX."
        )
    present, applied = migration_hashes(), manifest.get("migrations") or {"it names none": ""}
    if unknown := [path for path, digest in applied.items() if present.get(path) != digest]:
        raise CommandError(
            f"The backup has migrations that this version does not have ({unknown[0]}): restore it with the version "
            'that made it. docs/operations.md says the rest under "Data of another version".'
        )
    with connected_as_owner(), connection.cursor() as cursor:
        made_with = int(manifest["postgresql"]) // 10_000
        if backup.major() < made_with:
            raise CommandError(
                f"The backup is of PostgreSQL {made_with}, and this server is PostgreSQL {backup.major()}, which "
                f"cannot read it: restore it into PostgreSQL {made_with} or later. `make up` and Compose run "
                "PostgreSQL 18."
            )
        if User._meta.db_table in connection.introspection.table_names(cursor) and User.objects.exists():
            raise CommandError("This product has users already: a backup is restored into an empty one.")
