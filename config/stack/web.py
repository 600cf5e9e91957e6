"""The web process of `make up`: brings the database and the static files up to date, then serves."""

import os
import sys

import django
from django.core.management import call_command

from config.serving import serve
from config.stack import WEB_PROCESSES

# A person who presses Ctrl-C waits less than an operator who restarts a server for many.
GRACEFUL_SECONDS = 3


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")
    django.setup()
    # In this process rather than in one before it, since loading Django takes longer than both together.
    call_command("migrate", interactive=False, verbosity=0)
    call_command("collectstatic", interactive=False, verbosity=0)
    is_one_of_several = (os.environ.get(WEB_PROCESSES) or "1") != "1"
    serve(host, port, graceful_seconds=GRACEFUL_SECONDS, shares_address=is_one_of_several)


if __name__ == "__main__":
    main()
