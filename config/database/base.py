"""The module in which Django expects the engine `config.database`."""

from typing import Any

from django.db.backends.postgresql import base
from psycopg import OperationalError
from psycopg_pool import ConnectionPool

from config.database.operations import DatabaseOperations
from core import resilience


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
