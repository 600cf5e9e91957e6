"""`manage.py chaos`: nothing acknowledged is lost, and a second of an answer at most; exit status 1 if it is."""

import secrets
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management import CommandError

from evals.datasets.loading import Report
from evals.management import ReportingCommand
from evals.reliability import chaos, killed_answers
from evals.reliability.faults import FAULTS
from evals.tables import Check, lines, violations


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
        parser.add_argument("--answers", type=int, default=20, help="how many are written at each kill (default 20)")
        parser.add_argument("--kills", type=int, default=4, help="how often a web process is killed (default 4)")
        parser.add_argument(
            "--answer-lease", type=int, default=10, help="seconds without which a web process is taken for dead (10)"
        )
        parser.add_argument("--only", default="", metavar="TEXT", help="only faults with this in their name")
        parser.add_argument("--logs", type=Path, metavar="DIR", help="keep what the programs logged here")

    def handle(self, *args: Any, **options: Any) -> None:
        counts = ("turns", "faults", "people", "attempts", "kills")
        if min(options[name] for name in counts) < 1 or options["answers"] < len(killed_answers.WEBS):
            raise CommandError("Turns, faults, people, attempts and kills: at least one each; answers: two.")
        if not any(options["only"] in fault.name for fault in FAULTS):
            names = ", ".join(fault.name for fault in FAULTS)
            raise CommandError(f"No fault has {options['only']!r} in its name: {names}.")
        seed = secrets.randbelow(10**6) if options["seed"] is None else options["seed"]
        self.report(f"Seed {seed}.")
        failed: list[str] = []
        for name, part in PARTS.items():
            if options["part"] in (None, name):
                checks = [Check("seed", str(seed)), *part(options, seed, self.report)]
                self.stdout.write(lines([check.row for check in checks]))
                failed += violations(checks)
        if failed:
            raise CommandError(" ".join(failed))


def _save_turns(options: dict[str, Any], seed: int, report: Report) -> list[Check]:
    names = ("turns", "faults", "people", "patience", "attempts", "lease", "only", "logs")
    plan = chaos.Plan(seed=seed, **{name: options[name] for name in names})
    outcome = chaos.run(plan, report)
    return outcome.checks(plan)


def _kill_answers(options: dict[str, Any], seed: int, report: Report) -> list[Check]:
    given = {name: options[name] for name in ("answers", "kills", "logs")}
    plan = killed_answers.AnswersPlan(seed=seed, lease=options["answer_lease"], **given)
    outcome = killed_answers.run(plan, report)
    return outcome.checks(plan)


PARTS = {"saves": _save_turns, "answers": _kill_answers}
