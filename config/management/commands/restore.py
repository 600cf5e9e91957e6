"""`manage.py restore FILE`: restores a backup into an empty product, verified before and compared after."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, call_command
from django.db import connection, connections

from config.ops import backup, restore
from config.ops.backup import opened, passphrase
from core.isolation.acting import is_cluster
from core.isolation.checks import connected_as_owner
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
                manifest = backup.read_manifest(file, passphrase=passphrase())
                _refuse_unless_fitting(manifest)
                file.seek(0)
                backup.restore(manifest, backup.read_dump(file, passphrase=passphrase()))
            complaints = list(restore.differences(manifest, was_just_restored=True))
            settings_changed = list(restore.changed_settings(manifest))
            if restore.is_of_other_migrations(manifest):
                self.stdout.write("The backup is of another version: its rows are carried over column by column.")
                # Defaults of settings belong to a version too.
                notes = [*restore.carry_over(), *settings_changed]
            else:
                notes, complaints = [], complaints + settings_changed
                # A backup of an earlier version gets the later migrations.
                call_command("migrate", verbosity=0, interactive=False)
            if is_cluster(connection):
                # It came to the coordinator.
                call_command("distribute", verbosity=0)
        finally:
            connections.close_all()
        for note in (*notes, *restore.about_the_key(manifest)):
            self.stdout.write(note)
        if complaints:
            raise CommandError("Not everything is as it was in the backup:\n" + "\n".join(complaints))
        self.stdout.write(
            f"Restored {restore.total_rows(manifest):,} rows of {manifest['made_at']}; all compared equal."
        )


def _refuse_unless_fitting(manifest: dict[str, Any]) -> None:
    prefix = settings.DATABASE_ROLES.prefix
    if manifest.get("roles_prefix") != prefix:
        raise CommandError(
            f"The backup belongs to roles named {manifest.get('roles_prefix')}_…, and here they are {prefix}_…: set "
            "DATABASE_ROLE_PREFIX."
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
