#!/usr/bin/env python
"""Django's command line, with the settings for this machine unless DJANGO_SETTINGS_MODULE names others."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")
    from django.core.management import execute_from_command_line
    from django.db import OperationalError, connection

    try:
        execute_from_command_line(sys.argv)
    except OperationalError as error:
        if connection.connection is not None:
            raise
        # In one line, however many the driver takes.
        why = " ".join(str(error).split())
        sys.exit(f"The database does not answer ({why}): start it with `make up`, or name one in DATABASE_URL.")


if __name__ == "__main__":
    main()
