"""`manage.py flush`, run as the owner of the tables: the application's own role may not empty them."""

from typing import Any

from django.core.management.commands import flush

from core.isolation.connecting import connected_as_owner


class Command(flush.Command):
    def handle(self, **options: Any) -> None:
        with connected_as_owner():
            super().handle(**options)
