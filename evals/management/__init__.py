"""The base of the commands."""

from collections.abc import Sequence

from django.core.management import BaseCommand, CommandError

from evals.tables import Check, lines


class ReportingCommand(BaseCommand):
    """Figures go to standard output, and what it is about meanwhile to standard error."""

    def report(self, line: str) -> None:
        self.stderr.write(line, self.style.NOTICE)

    def show(self, checks: Sequence[Check]) -> Sequence[Check]:
        self.stdout.write(lines([check.row for check in checks]))
        return checks

    def judge(self, *checks: Check) -> None:
        """Raises `CommandError` with a sentence for each that does not hold."""
        if failed := [check.violation for check in checks if not check.holds]:
            raise CommandError(" ".join(failed))
