"""`manage.py backup FILE`: writes all data of the database, as of one moment, into one file."""

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError
from django.utils import timezone

from config.ops import backup, backup_file, comparison
from core.isolation.fitting import applied_migrations


class Command(BaseCommand):
    help = (
        "Write everything in the database to FILE (- is standard output) while the product runs. With "
        "RECOLLECT_BACKUP_PASSPHRASE set the file is encrypted."
    )
    # They import every page and tool, which takes longer than the command; the web process runs them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file")

    def handle(self, *args: Any, **options: Any) -> None:
        target = options["file"]
        rows = _write(sys.stdout.buffer) if target == "-" else _write_file(Path(target))
        self.stderr.write(f"{rows:,} rows{'' if backup_file.passphrase() else ', not encrypted'}.")


def _write_file(path: Path) -> int:
    """Under another name until it is complete, readable only by its owner."""
    if path.is_dir():
        raise CommandError(f"{path} is a folder: name a file in it, as in {path / 'recollect.backup'}.")
    partial = path.with_name(f"{path.name}.part")
    try:
        partial.unlink(missing_ok=True)
        partial.touch(0o600)
        with partial.open("wb") as file:
            rows = _write(file)
        partial.rename(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        partial.unlink(missing_ok=True)
    return rows


def _write(out: IO[bytes]) -> int:
    with backup.reading_everything():
        tables = comparison.tables()
        manifest = {
            "format": "recollect-backup/1",
            "made_at": timezone.now().isoformat(),
            "postgresql": backup.version(),
            "pg_dump": backup.dumping_major(),
            "roles_prefix": settings.DATABASE_ROLES.prefix,
            "settings": comparison.kept_settings(),
            "migrations": applied_migrations(),
            "columns": comparison.column_types(),
            "secret_key": comparison.fingerprint(settings.SECRET_KEY),
            "tables": tables,
        }
        with backup.dumping() as dump:
            backup_file.write(out, manifest, dump)
    out.flush()
    return sum(int(table["rows"]) for table in tables.values())
