"""Compiles the ORM's queries; on a Citus cluster each personal table in one names its user.

Citus runs a statement on one node if every distributed table in it is compared with the same user: in a lookup by key,
beside a join, in a subquery. Row-level security compares the user too, but with a setting, which is read on the node,
too late for routing. So the compiler adds `user_id = 7` for each table. On a single server it adds nothing.

`SQLCompiler`, its `pre_sql_setup` and its `where` are names that Django does not document. There is no documented way
to add a condition to each table of a query, including those of joins and subqueries. `test_routing.py` fails when one
of these names is removed.
"""

from typing import Any

from django.db.backends.postgresql import compiler
from django.db.models.expressions import Col
from django.db.models.lookups import Exact
from django.db.models.sql.constants import LOUTER
from django.db.models.sql.query import Query
from django.db.models.sql.where import AND, WhereNode

from core.citus.routing import owner_fields, routed_to
from core.isolation.acting import is_cluster


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


class SQLAggregateCompiler(compiler.SQLAggregateCompiler):
    """Its tables are in the inner query, which has its own compiler."""


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
