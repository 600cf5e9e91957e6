"""Where Django looks for an engine."""

from types import SimpleNamespace
from typing import Any

import psycopg
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.postgresql import base
from django.db.backends.utils import debug_transaction

from config.database.pipelined import Parameters, PipelinedConnection
from config.database.pool import RecoveringPool


class DatabaseWrapper(base.DatabaseWrapper):
    """Makes the pool of another class, begins transactions itself, and has plans kept; everything else is Django's.

    A transaction is begun along with its first statement, and with what it is to begin with (`opening`, set by whoever
    begins it), which spares each one two round trips. A connection therefore stays in what psycopg calls autocommit, as
    Django has it with SQLite.
    """

    # Django's own, which the stubs do not know.
    _connection_pools: dict[str, Any]
    connection: Any
    # Django asks it for a connection where there is no pool.
    Database = SimpleNamespace(**{**vars(psycopg), "connect": PipelinedConnection.connect})  # type: ignore[assignment]

    opening: tuple[str, Parameters] | None = None
    """A statement for the next transaction that is begun, with its parameters; it is forgotten by then."""

    def _start_transaction_under_autocommit(self) -> None:
        (statement, parameters), self.opening = self.opening or ("", {}), None
        with self.wrap_database_errors:
            self.connection.begin(statement, parameters)
        if self.queries_logged:
            # Whoever reads the log wants to see where a transaction begins.
            with debug_transaction(self, f"BEGIN; {statement.strip()}"), self.wrap_database_errors:
                self.connection.settle()

    def _set_autocommit(self, autocommit: bool) -> None:
        # It nearly always is, and to set it again is not free.
        if self.connection.autocommit != autocommit:
            super()._set_autocommit(autocommit)  # type: ignore[misc]

    def _configure_connection(self, connection: Any) -> bool:
        needs_commit: bool = super()._configure_connection(connection)  # type: ignore[misc]
        if connection.prepare_threshold is None:
            return needs_commit
        connection.keep_plans()
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
