"""`manage.py chaos`: nothing acknowledged is lost, and a second of an answer at most; exit status 1 if it is."""

import secrets
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import CommandError

from evals.management import ReportingCommand
from evals.options import Number, add_numbers
from evals.reliability import chaos, killed_answers
from evals.reliability.faults import FAULTS
from evals.tables import Check

NUMBERS = {
    "turns": Number(2000, "how many to save at least"),
    "faults": Number(20, "how many strike meanwhile"),
    "people": Number(6, "how many save at once"),
    "patience": Number(30.0, "seconds from the last fault until all is searchable"),
    "attempts": Number(5, "after so many that kill the worker a row is set aside"),
    "lease": Number(15, "seconds for which a dead worker keeps its rows"),
    "answers": Number(20, "how many are written at each kill"),
    "kills": Number(4, "how often a web process is killed"),
}
OF_SAVES = ("turns", "faults", "people", "patience", "attempts", "lease", "only", "logs")


class Command(ReportingCommand):
    help = (
        "Save turns over HTTP while workers, broker and database are made to fail, then kill web processes that write "
        "answers, each in a product of its own."
    )
    # It has a database of its own.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--part", choices=("saves", "answers"), help="one part alone: turns that are saved, or answers (both)"
        )
        add_numbers(parser, NUMBERS)
        parser.add_argument("--seed", type=int, help="of the faults and when they strike; printed if not given")
        parser.add_argument("--only", default="", metavar="TEXT", help="only faults with this in their name")
        parser.add_argument("--logs", type=Path, metavar="DIR", help="keep what the programs logged here")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["answers"] < len(killed_answers.WEBS):
            raise CommandError("--answers must be at least 2: one for each web process.")
        if not any(options["only"] in fault.name for fault in FAULTS):
            names = ", ".join(fault.name for fault in FAULTS)
            raise CommandError(f"No fault has {options['only']!r} in its name: {names}.")
        seed = secrets.randbelow(10**6) if options["seed"] is None else options["seed"]
        self.report(f"Seed {seed}.")
        checks = [*self.show([Check("seed", str(seed))])]
        if options["part"] != "answers":
            plan = chaos.Plan(seed=seed, **{name: options[name] for name in OF_SAVES})
            checks += self.show(chaos.run(plan, self.report).checks(plan))
        if options["part"] != "saves":
            given = {name: options[name] for name in ("answers", "kills", "logs")}
            answers_plan = killed_answers.AnswersPlan(seed=seed, **given)
            checks += self.show(killed_answers.run(answers_plan, self.report).checks(answers_plan))
        self.judge(*checks)
