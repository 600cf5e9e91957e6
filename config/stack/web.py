"""The web process of `make up`: runs migrations and collects static files, then serves."""

import os
import sys

import django
from django.core.management import CommandError, call_command

from config.serving import serve
from config.stack import REFUSED, WEB_PROCESSES

# A user who presses Ctrl-C waits less long than an operator who restarts a busy server.
GRACEFUL_SECONDS = 3


def main() -> None:
    host, port = sys.argv[1], int(sys.argv[2])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")
    django.setup()
    # In this process and not in an earlier one, because loading Django takes longer than both together.
    try:
        call_command("migrate", interactive=False, verbosity=0)
    except CommandError as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(REFUSED)
    call_command("collectstatic", interactive=False, verbosity=0)
    is_one_of_several = (os.environ.get(WEB_PROCESSES) or "1") != "1"
    serve(host, port, graceful_seconds=GRACEFUL_SECONDS, shares_address=is_one_of_several)


if __name__ == "__main__":
    main()
