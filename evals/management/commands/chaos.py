"""`manage.py chaos`: nothing acknowledged is lost, whatever dies; exit status 1 if it is."""

import secrets
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import CommandError

from evals.management import ReportingCommand
from evals.reliability import chaos
from evals.reliability.faults import FAULTS
from evals.tables import lines


class Command(ReportingCommand):
    help = "Save turns over HTTP while workers, broker and database are made to fail, in a product of its own."
    # It has a database of its own.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--turns", type=int, default=2000, help="how many to save at least (default 2000)")
        parser.add_argument("--faults", type=int, default=20, help="how many strike meanwhile (default 20)")
        parser.add_argument("--people", type=int, default=6, help="how many save at once (default 6)")
        parser.add_argument("--seed", type=int, help="of the faults and when they strike; printed if not given")
        parser.add_argument(
            "--patience", type=float, default=30, help="seconds from the last fault until all is searchable (30)"
        )
        parser.add_argument(
            "--attempts", type=int, default=5, help="after so many that kill the worker a row is set aside (5)"
        )
        parser.add_argument("--lease", type=int, default=15, help="seconds for which a dead worker keeps its rows (15)")

        parser.add_argument("--only", default="", metavar="TEXT", help="only faults with this in their name")
        parser.add_argument("--logs", type=Path, metavar="DIR", help="keep what the programs logged here")

    def handle(self, *args: Any, **options: Any) -> None:
        names = ("turns", "faults", "people", "patience", "attempts", "lease", "only", "logs")
        seed = secrets.randbelow(10**6) if options["seed"] is None else options["seed"]
        plan = chaos.Plan(seed=seed, **{name: options[name] for name in names})
        if min(plan.turns, plan.faults, plan.people, plan.attempts) < 1:
            raise CommandError("Turns, faults, people and attempts: at least one each.")
        if not any(plan.only in fault.name for fault in FAULTS):
            raise CommandError(f"No fault has {plan.only!r} in its name: {', '.join(fault.name for fault in FAULTS)}.")
        self.report(f"Seed {seed}.")
        outcome = chaos.run(plan, self.report)
        self.stdout.write(lines([("seed", str(seed)), *outcome.table(plan)]))
        if found := outcome.faults_found(plan):
            raise CommandError(" ".join(found))
