"""`manage.py migrate`, run as the owner of the tables: the application's own role may not change them."""

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.management import CommandError
from django.core.management.commands import migrate
from django.db import DatabaseError, OperationalError, connection
from django.db.migrations.executor import MigrationExecutor

from core.citus.routing import ONE_SHARD_AFTER_ANOTHER
from core.isolation.acting import is_cluster
from core.isolation.connecting import connected_as_owner
from core.isolation.fitting import refuse_unless_fitting, unfitting
from core.isolation.policies import apply_bound_policies
from memory.index.vectors import retire_blocks


class Command(migrate.Command):
    def get_check_kwargs(self, options: dict[str, Any]) -> dict[Any, Any]:
        """Skip the database checks: they are about the serving role, and about tables that this command creates."""
        return {name: value for name, value in super().get_check_kwargs(options).items() if name != "databases"}

    def handle(self, *args: Any, **options: Any) -> str | None:
        with connected_as_owner():
            _refuse_without_roles()
            if is_cluster(connection):
                with connection.cursor() as cursor:
                    cursor.execute(ONE_SHARD_AFTER_ANOTHER)
            _migrate_or_refuse(lambda: super(Command, self).handle(*args, **options))
            if options["fake"] or options["plan"] or options["check_unapplied"]:
                return None
            # One app's migrations may be undone, or be the last that were missing.
            executor = MigrationExecutor(connection)
            if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
                refuse_unless_fitting()
                apply_bound_policies()
                retire_blocks()
        return None


def _migrate_or_refuse(migrate_all: Callable[[], Any]) -> None:
    """A migration that meets tables of another version fails where it happens to: the reason is the same."""
    try:
        migrate_all()
    except OperationalError:
        raise
    except DatabaseError as error:
        first_line = str(error).strip().splitlines()[0]
        raise unfitting([f"a migration failed, {first_line}"]) from error


def _refuse_without_roles() -> None:
    roles = settings.DATABASE_ROLES
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", [list(roles.all)])
        missing = set(roles.all) - {name for (name,) in cursor.fetchall()}
    if missing:
        raise CommandError(
            f"The database server has no role {', '.join(sorted(missing))}: run `manage.py create_roles` first."
        )
