"""`manage.py check_import FILE EXPECTED`: compares an export with an expectation, without storing anything."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from evals.expectations import as_expectation, differences, read_all
from recollect_cli.printing import printable


class Command(BaseCommand):
    help = "Read an export and compare it with its expectation; the exit status is 0 if nothing differs."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path)
        parser.add_argument("expected", type=Path)

    def handle(self, *args: Any, path: Path, expected: Path, **options: Any) -> None:
        try:
            expectation = json.loads(expected.read_text())
        except (OSError, ValueError) as error:
            raise CommandError(printable(f"The expectation cannot be read: {error}")) from error
        found = as_expectation(read_all(path))
        different = differences(found, expectation)
        for each in different:
            self.stdout.write(printable(each))
        if different:
            raise CommandError(f"{len(different)} differences.")
        self.stdout.write(printable(f"As expected: {found['outcome']}. {found.get('why', '')}".strip()))
