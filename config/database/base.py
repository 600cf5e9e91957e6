"""The module in which Django expects the engine `config.database`."""

from typing import Any

from django.db.backends.postgresql import base, compiler, operations
from django.db.models.expressions import Col
from django.db.models.lookups import Exact
from django.db.models.sql.constants import LOUTER
from django.db.models.sql.query import Query
from django.db.models.sql.where import AND, WhereNode
from psycopg import OperationalError
from psycopg_pool import ConnectionPool

from core import deadlines
from core.citus.routing import owner_fields, routed_to
from core.isolation.acting import is_cluster


class DatabaseOperations(operations.DatabaseOperations):
    @property
    def compiler_module(self) -> str:  # type: ignore[override]
        """Called once per thread. A single server uses Django's own compilers."""
        return "config.database.base" if is_cluster(self.connection) else "django.db.backends.postgresql.compiler"


class DatabaseWrapper(base.DatabaseWrapper):
    """Checks each connection that the pool gives, and has the pool replace all dead ones when it finds the first.

    psycopg's own check (`CONN_HEALTH_CHECKS`) pauses ever longer after each dead connection, so that after a restart of
    PostgreSQL four of them use up the five seconds of a request. `pool` is an attribute that Django does not document;
    `test_the_first_request_after_a_restart_is_served_at_once` fails when it goes away.
    """

    ops_class = DatabaseOperations

    def create_cursor(self, name: str | None = None) -> Any:
        """Refuses a query of a request that is out of time (core/deadlines.py): a loop over rows ends here."""
        deadlines.left()
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


# Citus runs a statement on one node if every distributed table in it is compared with the same user: in a lookup by
# key, beside a join, in a subquery. Row-level security compares the user too, but with a setting, which is read on the
# node, too late for routing. So the compiler adds `user_id = 7` for each table. On a single server it adds nothing.
#
# `SQLCompiler`, its `pre_sql_setup` and its `where` are names that Django does not document. There is no documented way
# to add a condition to each table of a query, including those of joins and subqueries. `test_routing.py` fails when one
# of these names is removed.


class SQLInsertCompiler(compiler.SQLInsertCompiler):
    def assemble_as_sql(self, fields: Any, value_rows: Any) -> Any:
        """On a cluster as values: Citus sends rows from a query, such as `unnest`, by a COPY that is refused."""
        one_by_one = is_cluster(self.connection)
        return (super(compiler.SQLInsertCompiler, self) if one_by_one else super()).assemble_as_sql(fields, value_rows)  # type: ignore[attr-defined]


class SQLCompiler(compiler.SQLCompiler):
    def pre_sql_setup(self, with_col_aliases: bool = False) -> Any:
        """For each table: those that `select_related` joins are known from here on."""
        result = super().pre_sql_setup(with_col_aliases=with_col_aliases)
        conditions = _conditions(self.query, self.connection)
        if conditions:
            own = [self.where] if self.where else []  # type: ignore[has-type]
            self.where = WhereNode([*own, *conditions], AND)
        return result


# Its tables are in the inner query, which has its own compiler.
SQLAggregateCompiler = compiler.SQLAggregateCompiler


class SQLUpdateCompiler(compiler.SQLUpdateCompiler):
    def pre_sql_setup(self) -> Any:  # type: ignore[override]
        result = super().pre_sql_setup()
        for condition in _conditions(self.query, self.connection):
            self.query.where.add(condition, AND)
        return result


class SQLDeleteCompiler(compiler.SQLDeleteCompiler):
    def as_sql(self) -> Any:  # type: ignore[override]
        if self.single_alias:
            for condition in _conditions(self.query, self.connection):
                self.query.where.add(condition, AND)
        return super().as_sql()


def _conditions(query: Query, connection: Any) -> list[Any]:
    user_id = routed_to(connection)
    if user_id is None:
        return []
    fields = owner_fields()
    exact = [
        (fields[join.table_name], alias)
        for alias, join in query.alias_map.items()
        if query.alias_refcount[alias] and join.table_name in fields and join.join_type != LOUTER
    ]
    return [Exact(Col(alias, field), user_id) for field, alias in exact]
