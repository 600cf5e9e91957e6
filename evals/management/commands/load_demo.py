"""`manage.py load_demo`: a person with half a year of history, to look at the product with."""

from typing import Any

from django.core.management import BaseCommand
from django.utils import timezone

from core.isolation.acting import acting_as
from evals.demo import ensure_person, load_demo, load_notes


class Command(BaseCommand):
    help = "Make a demo person with half a year of conversations; running it again changes nothing."
    # They import every page and tool, which takes longer than the command; the web process runs them.
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        user, password = ensure_person()
        with acting_as(user):
            now = timezone.now()
            saved, written = load_demo(user, now=now), load_notes(user, now=now)
        if saved or written:
            self.stdout.write(
                f"Saved {saved} turns and {written} notes of {user.email}; a running worker is making them searchable."
            )
        else:
            self.stdout.write(f"{user.email} has its history already.")
        if password:
            self.stdout.write(f"Log in as {user.email} with the password {password}")
            self.stdout.write("The password is shown this once and kept nowhere.")
