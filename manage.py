#!/usr/bin/env python
"""Django's command line, with the settings for this machine unless DJANGO_SETTINGS_MODULE names others."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
