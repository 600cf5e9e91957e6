"""`manage.py soak`: many at once for a long time, and nobody sees another's words; exit status 1 if anybody does."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from evals.management import ReportingCommand
from evals.options import Number, add_numbers
from evals.reliability import soak

NUMBERS = {
    "calls": Number(100_000, "how many in all"),
    "people": Number(8, "who have accounts and tokens"),
    "visitors": Number(4, "who have neither"),
    "connections": Number(16, "how many call at once"),
    "processes": Number(2, "of clients"),
    "pool": Number(16, "connections to the database that a process may have"),
    "seed": Number(0, "of what is called, and of who leaves when", may_be_zero=True),
    "cancelled": Number(0.05, "the share of calls whose client leaves early", may_be_zero=True, most=1),
}


class Command(ReportingCommand):
    help = "Call everything at once, over REST, MCP and the chat, as several people, in a product of its own."
    # It has a database of its own.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_numbers(parser, NUMBERS)
        parser.add_argument("--logs", type=Path, metavar="DIR", help="keep what the programs logged here")

    def handle(self, *args: Any, **options: Any) -> None:
        plan = soak.SoakPlan(**{name: options[name] for name in (*NUMBERS, "logs")})
        self.judge(*self.show(soak.run(plan, self.report).checks(plan)))
