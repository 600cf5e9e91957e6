"""`manage.py distribute`: distributes the schema over the nodes of a Citus cluster, each user's rows on one node."""

from typing import Any

from django.core.management import BaseCommand

from core.citus.distribute import distribute
from core.isolation.connecting import connected_as_owner


class Command(BaseCommand):
    help = (
        "On the coordinator of a Citus cluster, distribute personal tables by their user and put a copy of the others "
        "on every node. Run it after `migrate`, as the role in DATABASE_OWNER_URL; writes wait until it is done. It "
        "looks first for what stands in the way, and is all done or not at all; running it again does nothing."
    )
    # The database check would only report that the schema is not distributed.
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        with connected_as_owner():
            placed = distribute(log=self.stdout.write if options["verbosity"] else lambda line: None)
        if options["verbosity"]:
            self.stdout.write(f"{len(placed)} tables were placed." if placed else "Every table is placed already.")
