"""`manage.py create_token EMAIL`: a token for a person's agent, shown once."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agent_tools.models import AccessToken
from intake.models import User


class Command(BaseCommand):
    help = "Make an access token for somebody, and print it: it is kept only as a digest and cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--name", default="", help="What the token is for, so that its owner knows it again.")
        parser.add_argument("--days", type=int, default=90, help="How long it is valid (default: 90 days).")

    def handle(self, *args: Any, email: str, name: str, days: int, **options: Any) -> None:
        if days < 1:
            raise CommandError("--days must be at least 1.")
        try:
            user = User.objects.get_by_natural_key(email)
        except User.DoesNotExist:
            raise CommandError(f"Nobody is registered as {email}.") from None
        _, token = AccessToken.objects.create(user, expiry=timedelta(days=days), name=name)
        self.stdout.write(token)
