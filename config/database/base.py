"""Where Django looks for an engine."""

from typing import Any

from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base

from config.database.pool import RecoveringPool


class DatabaseWrapper(base.DatabaseWrapper):
    """Makes the pool of another class, begins transactions itself, and has plans kept; everything else is Django's.

    psycopg would send BEGIN alone before a transaction's first statement. Here what a transaction is to begin with
    (`opening`, set by whoever begins it) goes along, which spares every one of a person's a round trip. A connection
    therefore stays in what psycopg calls autocommit, as Django has it with SQLite.
    """

    # Django's own, which the stubs do not know.
    _connection_pools: dict[str, Any]
    connection: Any

    opening = ""
    """A statement without parameters for the next transaction that is begun; it is forgotten by then."""

    def _start_transaction_under_autocommit(self) -> None:
        opening, self.opening = self.opening, ""
        if opening and (self.queries_logged or self.execute_wrappers):
            with self.cursor() as cursor:
                cursor.execute(f"BEGIN; {opening}")
        else:
            with self.wrap_database_errors:
                self.connection.execute(f"BEGIN; {opening}", prepare=False)

    def _set_autocommit(self, autocommit: bool) -> None:
        # It nearly always is, and to set it again is not free.
        if self.connection.autocommit != autocommit:
            super()._set_autocommit(autocommit)  # type: ignore[misc]

    def _configure_connection(self, connection: Any) -> bool:
        needs_commit: bool = super()._configure_connection(connection)  # type: ignore[misc]
        if connection.prepare_threshold is None:
            return needs_commit
        # What is prepared (intake.prepared) has one plan, whatever its parameters. PostgreSQL would make some anew for
        # every call: it takes a parameter in a LIMIT for a tenth of all rows, and a plan for the call looks better.
        connection.execute("SET plan_cache_mode = force_generic_plan", prepare=False)
        return True

    def create_cursor(self, name: str | None = None) -> Any:
        cursor = super().create_cursor(name)
        if name:
            # As Django makes it, but for this: what a transaction reads piece by piece, it need not leave behind.
            cursor._withhold = self.autocommit
        return cursor

    @property
    def pool(self) -> Any:
        options = self.settings_dict["OPTIONS"].get("pool")
        if options and self.alias not in (NO_DB_ALIAS, *self._connection_pools):
            made = RecoveringPool(
                kwargs={**self.get_connection_params(), "autocommit": True},
                open=False,
                configure=self._configure_connection,
                **options,
            )
            # Of several threads the first sets it.
            self._connection_pools.setdefault(self.alias, made)
        return super().pool
