"""`manage.py mcp`: serves the tools over standard input and output, for the owner of the token in `RECOLLECT_TOKEN`."""

import os
from argparse import ArgumentParser
from typing import Any

import anyio
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from agent_tools.authentication import TokenRefused, verify
from agent_tools.mcp.stdio import serve
from agent_tools.tools import mcp_registry

VARIABLE = "RECOLLECT_TOKEN"


class Command(BaseCommand):
    help = f"Serve MCP over standard input and output, as the owner of the token in {VARIABLE}."
    # The server has run the checks, and an agent waits for this start.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--tools", choices=["all", "few"], default="all", help="list every tool, or the seven of daily work"
        )
        parser.add_argument(
            "--all-tools", action="store_const", dest="tools", const="all", help="what --tools all does"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        secret = os.environ.get(VARIABLE, "").strip()
        if not secret:
            raise CommandError(f"Put a token into {VARIABLE}: make one at /settings/tokens/.")
        try:
            verify(secret, now=timezone.now())
        except TokenRefused as refused:
            raise CommandError(f"{VARIABLE}: {refused.detail}") from None
        anyio.run(lambda: serve(mcp_registry, secret=secret, lists_few=options["tools"] == "few"))
