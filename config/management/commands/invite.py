"""`manage.py invite`: creates a link for registration, shown once."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from core.ids import first_code
from core.isolation.acting import acting_as_staff
from intake.accounts.registration import Registration, is_new, policy
from intake.models import Invitation
from intake.models.installation import read_kept_settings
from intake.models.invitations import DEFAULT_DAYS, LONGEST_DAYS, MOST_USES


class Command(BaseCommand):
    help = (
        "Make an invitation, and print where it leads: its secret is kept only as a digest, and cannot be shown again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--note", default="", help="Whom it is for; staff see it.")
        parser.add_argument("--uses", type=int, default=1, help="How many people may register by it (default: 1).")
        parser.add_argument(
            "--days", type=int, default=DEFAULT_DAYS, help=f"How long it is good for (default: {DEFAULT_DAYS})."
        )

        parser.add_argument(
            "--first", action="store_true", help="Print the code for the first person, who becomes the administrator."
        )

    def handle(self, *args: Any, first: bool, note: str, uses: int, days: int, **options: Any) -> None:
        read_kept_settings()
        if first:
            if not is_new():
                raise CommandError(
                    "Somebody has registered already: make an invitation, or `manage.py createsuperuser`."
                )
            where, code = f"{settings.SITE_ADDRESS}{reverse('intake:register')}", first_code(settings.SECRET_KEY)
            self.stdout.write(f"{where} asks for {code}")
            return
        if policy() == Registration.CLOSED:
            raise CommandError("Registration is closed: let people in by invitation first, at /staff/settings/.")
        if not 1 <= uses <= MOST_USES or not 1 <= days <= LONGEST_DAYS:
            raise CommandError(f"An invitation is for 1 to {MOST_USES:,} people and for 1 to {LONGEST_DAYS} days.")
        with acting_as_staff():
            _, secret = Invitation.objects.issue(note=note[:200], uses=uses, days=days)
        self.stdout.write(f"{settings.SITE_ADDRESS}{reverse('intake:register')}?invitation={secret}")
