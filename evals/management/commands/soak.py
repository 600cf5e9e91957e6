"""`manage.py soak`: many at once for a long time, and nobody sees another's words; exit status 1 if anybody does."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import CommandError

from evals.management import ReportingCommand
from evals.reliability import soak
from evals.tables import lines, violations

COUNTS = {
    "calls": (100_000, "how many in all"),
    "people": (8, "who have accounts and tokens"),
    "visitors": (4, "who have neither"),
    "connections": (16, "how many call at once"),
    "processes": (2, "of clients"),
    "pool": (16, "connections to the database that a process may have"),
    "seed": (0, "of what is called, and of who leaves when"),
}


class Command(ReportingCommand):
    help = "Call everything at once, over REST, MCP and the chat, as several people, in a product of its own."
    # It has a database of its own.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        for name, (default, meaning) in COUNTS.items():
            parser.add_argument(f"--{name}", type=int, default=default, help=f"{meaning} (default {default:,})")
        parser.add_argument(
            "--cancelled", type=float, default=0.05, help="the share of calls whose client leaves early (default 0.05)"
        )
        parser.add_argument("--logs", type=Path, metavar="DIR", help="keep what the programs logged here")

    def handle(self, *args: Any, **options: Any) -> None:
        plan = soak.SoakPlan(**{name: options[name] for name in (*COUNTS, "cancelled", "logs")})
        if min(plan.calls, plan.people, plan.visitors, plan.connections, plan.processes, plan.pool) < 1:
            raise CommandError("Calls, people, visitors, connections, processes and the pool: at least one each.")
        checks = soak.run(plan, self.report).checks(plan)
        self.stdout.write(lines([check.row for check in checks]))
        if failed := violations(checks):
            raise CommandError(" ".join(failed))
