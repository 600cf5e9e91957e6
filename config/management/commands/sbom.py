"""`manage.py sbom [FILE]`: writes the bill of materials of this installation."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import BaseCommand, CommandError

from config.ops import release


class Command(BaseCommand):
    help = (
        "Write a CycloneDX 1.6 document to FILE (- is standard output): the product and each package of its lock with "
        "version, hashes and licence. Asks neither the network nor the database."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", nargs="?", default="-")
        parser.add_argument("--lock", choices=["server", "local"], help="default: the one that is installed")

    def handle(self, *args: Any, **options: Any) -> None:
        lock = options["lock"] or release.lock_of_this_installation()
        packages = release.read_lock(lock)
        strangers = release.strangers(packages)
        for package in strangers:
            self.stderr.write(f"{package.name} {package.version} is installed, which is not the lock's version.")
        text = json.dumps(release.document(lock, [*packages, *strangers]), indent=2, ensure_ascii=False)
        self._write(options["file"], text + "\n")

    def _write(self, file: str, text: str) -> None:
        if file == "-":
            self.stdout.write(text, ending="")
            return
        try:
            Path(file).write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{file} cannot be written: {error.strerror}.") from error
