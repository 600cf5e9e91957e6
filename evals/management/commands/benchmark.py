"""`manage.py benchmark NAME`: the figures in the documentation, measured on this machine."""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from evals.benchmarks import BENCHMARKS
from evals.management import ReportingCommand
from evals.options import add_numbers
from evals.tables import columns


class Command(ReportingCommand):
    help = "Measure how fast and how large the product is, in scratch databases and processes of its own."

    def add_arguments(self, parser: ArgumentParser) -> None:
        names = parser.add_subparsers(dest="name", metavar="NAME", required=True)
        for benchmark in BENCHMARKS.values():
            options = names.add_parser(benchmark.name, help=benchmark.help, description=benchmark.help)
            add_numbers(options, benchmark.numbers)
            benchmark.add_arguments(options)
            options.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")

    def handle(self, *args: Any, **options: Any) -> None:
        benchmark = BENCHMARKS[options["name"]]
        figures = benchmark.run(options, self.report)
        self.stdout.write(columns(benchmark.table(figures)))
        for line in benchmark.words(figures):
            self.stdout.write(line)
        if options["json"]:
            options["json"].write_text(json.dumps(figures, indent=2) + "\n")
