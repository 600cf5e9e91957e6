"""`manage.py daily_backup FOLDER`: backs up if the last one is a day old, reads it back, and drops the oldest."""

import os
import shutil
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError, call_command
from django.utils import timezone

from config.stack.daily import DAY_SECONDS, daily_backups, last_daily_backup


class Command(BaseCommand):
    help = (
        "Make a backup in FOLDER unless the last one is less than a day old, and check it. Seven are kept, fewer if "
        "they take a quarter of the disk. With RECOLLECT_BACKUP_PASSPHRASE set it is encrypted."
    )
    # They import every page and tool, which takes longer than the command; the web process runs them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", type=Path)

    def handle(self, *args: Any, **options: Any) -> None:
        folder: Path = options["folder"]
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        last = last_daily_backup(folder)
        if last is not None and time.time() - last.stat().st_mtime < DAY_SECONDS:
            self.stdout.write(f"{last} is less than a day old.")
            return
        # Nobody waits for it, and people use the product meanwhile.
        os.nice(10)
        for partial in folder.glob("*-daily.backup.part"):
            partial.unlink()
        disk = shutil.disk_usage(folder)
        if last is not None and disk.free < 2 * last.stat().st_size:
            raise CommandError(
                f"No backup was made: {disk.free // 2**20:,} MB are free, and twice the last backup "
                f"({2 * last.stat().st_size // 2**20:,} MB) must be. Make room on the disk of {folder}."
            )
        path = folder / f"{timezone.now():%Y-%m-%d-%H%M%S}-daily.backup"
        call_command("backup", str(path), stderr=self.stderr)
        try:
            call_command("verify_backup", str(path), "--file-only", stdout=self.stdout)
        except CommandError:
            path.unlink()
            raise
        kept = daily_backups(folder)
        while len(kept) > 7 or (len(kept) > 1 and sum(each.stat().st_size for each in kept) > disk.total / 4):
            kept.pop(0).unlink()
