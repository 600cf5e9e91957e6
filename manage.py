#!/usr/bin/env python
"""Django's command line, with the settings for this machine unless DJANGO_SETTINGS_MODULE names others."""

import gc
import os
import sys

# They measure the product in databases of their own: where no server runs, throw-away ones do.
MEASURING = (["run_evals"], ["fit_ranking"], ["benchmark"])


def main() -> None:
    from config.stack import use_utf8

    use_utf8()
    gc.disable()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")
    from django.db import OperationalError, connection

    try:
        if sys.argv[1:2] in MEASURING:
            _measure()
        else:
            _execute()
    except OperationalError as error:
        from core.responses import is_disk_full

        if is_disk_full(error):
            sys.exit("The disk of the database is full: make room on it.")
        if connection.connection is not None:
            raise
        # In one line, however many the driver takes.
        why = " ".join(str(error).split())
        sys.exit(f"The database does not answer ({why}): start it with `make up`, or name one in DATABASE_URL.")


def _execute() -> None:
    """Load Django, and run the command. What loading makes stays: the collector would look through it in vain."""
    import django
    from django.core.management import execute_from_command_line

    from core.priority import share_from_now_on

    django.setup()
    share_from_now_on()
    execute_from_command_line(sys.argv)


def _measure() -> None:
    """Run the command on servers of its own. Only a repository has them: no wheel and no image has its tests."""
    try:
        from testing.servers import ServersFailed
        from testing.throwaway import unless_named
    except ModuleNotFoundError:
        sys.exit(
            f"{sys.argv[1]} measures on servers of its own, which only a copy of the repository has: run it there."
        )

    try:
        with unless_named(is_needed=True):
            _execute()
    except ServersFailed as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
