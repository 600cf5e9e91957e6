"""`manage.py read_export PATH --json FILE`: writes the contents of an export, without storing anything."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand

from evals.expectations import as_expectation, read_all
from recollect_cli.printing import printable


class Command(BaseCommand):
    help = "Read an export of another product without storing it; with --json, write what was read to a file."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path)
        parser.add_argument("--as", dest="product", help="the product, where it is not recognised")
        parser.add_argument("--json", type=Path, metavar="FILE", help="whole texts, in the shape of an expectation")

    def handle(self, *args: Any, path: Path, product: str | None, **options: Any) -> None:
        reading = read_all(path, product)
        if options["json"]:
            options["json"].write_text(json.dumps(as_expectation(reading), ensure_ascii=False, indent=1) + "\n")
        if reading.refusal is not None:
            self.stdout.write(printable(f"Refused: {reading.refusal}"))
            return
        counts = f"{len(reading.conversations)} conversations, {len(reading.documents)} documents"
        counts += f", {len(reading.records)} records" if reading.records else ""
        self.stdout.write(f"{counts}, {len(reading.skipped)} skipped.")
