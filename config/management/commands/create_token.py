"""`manage.py create_token EMAIL`: creates a token for a user's agent, shown once."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from agent_tools.authentication import LONGEST_DAYS, create_token
from agent_tools.models import DEFAULT_SCOPES, TokenScope
from core.errors import InvalidInput
from intake.models import User


class Command(BaseCommand):
    help = "Make an access token for somebody, and print it: it is kept only as a digest and cannot be shown again."
    # They import every page and tool, which takes longer than the command; the web process runs them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email")
        parser.add_argument("--name", default="", help="What the token is for, so that its owner knows it again.")
        parser.add_argument(
            "--days", type=int, default=LONGEST_DAYS, help=f"How long it is valid (default: {LONGEST_DAYS} days)."
        )
        parser.add_argument(
            "--scopes",
            nargs="+",
            choices=[scope.value for scope in TokenScope],
            default=sorted(DEFAULT_SCOPES),
            help="What it may do: search, read, write, delete, chat, import, capture (default: search and write).",
        )
        parser.add_argument("--project", default="", help="To which project belongs what it appends (default: none).")
        parser.add_argument("--bound", action="store_true", help="Whether it sees nothing but this project.")

    def handle(
        self, *args: Any, email: str, name: str, days: int, scopes: list[str], project: str, bound: bool, **options: Any
    ) -> None:
        try:
            user = User.objects.get_by_natural_key(email)
        except User.DoesNotExist:
            raise CommandError(f"Nobody is registered as {email}.") from None
        try:
            about: dict[str, Any] = {"days": days, "project": project, "is_bound": bound}
            made = create_token(user=user, name=name, scopes=map(TokenScope, scopes), **about)
        except InvalidInput as error:
            faults = [f"{field}: {' '.join(messages)}" for field, messages in (error.errors or {}).items()]
            raise CommandError(" ".join(faults) or error.detail) from None
        self.stdout.write(made.secret)
