"""What the commands share."""

from django.core.management import BaseCommand


class ReportingCommand(BaseCommand):
    """Figures go to standard output, and what it is about meanwhile to standard error."""

    def report(self, line: str) -> None:
        self.stderr.write(line, self.style.NOTICE)
