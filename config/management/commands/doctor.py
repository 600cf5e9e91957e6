"""`manage.py doctor`: what runs in which version, what is wrong, and what to do about it."""

import logging
import sys
from typing import Any

from django.core.management import BaseCommand
from django.utils import timezone

from config.ops import doctor


class Command(BaseCommand):
    help = (
        "Examine this installation: versions, the names of settings that are set, checks, migrations, queues, workers, "
        "disk and models. Prints no value of a setting and no text of a user; exits with 1 if something is wrong."
    )
    # It runs them itself, and goes on where one fails.
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        # The report says once that the database is away; the pool would say it each time it tries.
        logging.disable(logging.CRITICAL)
        try:
            report = doctor.examine(now=timezone.now())
        finally:
            logging.disable(logging.NOTSET)
        self.stdout.write(report.as_text())
        if report.problems:
            sys.exit(1)
