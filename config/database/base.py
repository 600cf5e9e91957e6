"""The module in which Django expects the engine `config.database`."""

from typing import Any

from django.db.backends.postgresql import base, operations
from psycopg import OperationalError
from psycopg_pool import ConnectionPool

from core import resilience
from core.isolation.acting import is_cluster


class DatabaseOperations(operations.DatabaseOperations):
    @property
    def compiler_module(self) -> str:  # type: ignore[override]
        """Called once per thread. A single server uses Django's own compilers."""
        return "config.database.compiler" if is_cluster(self.connection) else "django.db.backends.postgresql.compiler"


class DatabaseWrapper(base.DatabaseWrapper):
    """Checks each connection that the pool gives, and has the pool replace all dead ones when it finds the first.

    psycopg's own check (`CONN_HEALTH_CHECKS`) pauses ever longer after each dead connection, so that after a restart of
    PostgreSQL four of them use up the five seconds of a request. `pool` is an attribute that Django does not document;
    `test_the_first_request_after_a_restart_is_served_at_once` fails when it goes away.
    """

    ops_class = DatabaseOperations

    def create_cursor(self, name: str | None = None) -> Any:
        """Refuses a query of a request that is out of time (core/resilience.py): a loop over rows ends here."""
        resilience.left()
        return super().create_cursor(name)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        pool: ConnectionPool[Any] | None = self.pool
        if pool is None:
            return connection
        try:
            ConnectionPool.check_connection(connection)
        except OperationalError:
            pool.putconn(connection)
            pool.check()
            return super().get_new_connection(conn_params)
        return connection
