"""Distributes the schema over a Citus cluster: the plan, its obstacles, the placing, and the check afterwards.

Distributes the migrated schema over a Citus cluster, in one transaction: all of it is placed or nothing changes.

1. Look for obstacles, and change nothing where there is one (`core.citus.distribute`).
2. Take away the foreign keys: Citus makes none between a table that it has placed and one that it has not.
3. Make every table without an owner a reference table, a copy of which is on each node.
4. Give each personal table a primary key that begins with `user_id`, and distribute it by that, beside the others
   of the same person. Policies are not forced meanwhile: they hide every row from the owner, who copies them.
5. Compare the number of rows with what it was, put the foreign keys back, and force the policies again.

A table that was placed before is left alone, so `distribute` is run again after a migration that adds one.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.management import CommandError
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, transaction
from django.db.backends.utils import CursorWrapper
from django.db.migrations.executor import MigrationExecutor

from core.citus.routing import nodes, placed_tables
from core.isolation.acting import is_cluster
from core.isolation.checks import personal_models

OWNER_COLUMN = "user_id"

_REFERENCES = """
SELECT conrelid::regclass::text, confrelid::regclass::text
  FROM pg_constraint WHERE contype = 'f' AND connamespace = 'public'::regnamespace AND conparentid = 0
"""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Tables by name, sorted: `personal` are distributed by `user_id`, `shared` have a copy on every node."""

    personal: tuple[str, ...]
    shared: tuple[str, ...]

    @property
    def tables(self) -> list[str]:
        return [*self.shared, *self.personal]


def plan_tables() -> TablePlan:
    """Plan the tables of the database. A table that refers to a personal table is placed beside it, with or without
    row-level security, because a table on every node cannot refer to a distributed one.
    """
    existing = set(connection.introspection.django_table_names(only_existing=True, include_views=False))
    existing |= {"django_migrations"} & set(connection.introspection.table_names())
    personal = {model._meta.db_table for model in personal_models()} & existing
    with connection.cursor() as cursor:
        cursor.execute(_REFERENCES)
        references = [pair for pair in cursor.fetchall() if existing.issuperset(pair)]
    while beside := {table for table, other in references if other in personal} - personal:
        personal |= beside
    return TablePlan(tuple(sorted(personal)), tuple(sorted(existing - personal)))


# Unique indexes that cannot be enforced over several nodes. Primary keys are excepted: `distribute` adds the column to
# them.
_UNIQUE_WITHOUT_OWNER = """
SELECT indrelid::regclass::text, indexrelid::regclass::text
  FROM pg_index
 WHERE indrelid = ANY(%(tables)s::regclass[]) AND indisunique AND NOT indisprimary
   AND NOT EXISTS (SELECT FROM pg_attribute
                    WHERE attrelid = indrelid AND attname = %(owner)s
                      AND attnum = ANY((indkey::int2[])[0:indnkeyatts - 1]))
 ORDER BY 1, 2
"""
_OWNED_BY_ANOTHER = """
SELECT relname FROM pg_class
 WHERE oid = ANY(%s::regclass[]) AND NOT pg_has_role(relowner, 'USAGE') ORDER BY relname
"""
# Tables that Citus has registered on the coordinator. It neither distributes them nor releases their foreign keys.
_REFERS_TOO_EARLY = """
SELECT logicalrelid::text FROM pg_dist_partition
 WHERE logicalrelid = ANY(%s::regclass[]) AND autoconverted
   AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = logicalrelid AND attidentity <> '')
"""
_ON_NODES = """
SELECT nodename, nodeport, success, result
  FROM run_command_on_all_nodes(%s) JOIN pg_dist_node USING (nodeid)
"""
_HAS_VECTOR = "SELECT count(*) FROM pg_extension WHERE extname = 'vector'"


def obstacles(plan: TablePlan) -> list[str]:
    """Run as the owner of the tables. Returns an empty list if the schema can be distributed."""
    if not is_cluster(connection):
        return ["This database has no extension citus: `distribute` is for the coordinator of a Citus cluster."]
    # A node is queried as the role that queries the coordinator: each must admit every role, and have pgvector.
    of_nodes = (fault for role in (None, *settings.DATABASE_ROLES.all) for fault in _of_nodes_as(role))
    return list(_of_cluster()) or [*of_nodes, *_of_schema(plan), *_of_rows(plan)]


def _of_cluster() -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT groupid FROM pg_dist_local_group")
        (group,) = cursor.fetchone()
    if group:
        yield "This is a node of the cluster: put the coordinator's address into DATABASE_OWNER_URL."
    elif not any(node.has_shards for node in nodes(connection)):
        yield "The coordinator knows no node that takes rows: add some by `SELECT citus_add_node('host', port)`."


def _of_nodes_as(role: str | None) -> Iterator[str]:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            if role is not None:
                cursor.execute(f"SET LOCAL ROLE {role}")
            cursor.execute(_ON_NODES, [_HAS_VECTOR])
            answers = cursor.fetchall()
    except DatabaseError as error:
        if role is not None and "permission denied to set role" in str(error):
            return
        yield f"The nodes could not be asked as {role or 'the owner'}: {str(error).strip()}."
        return
    for host, port, has_answer, answer in answers:
        node = f"{host}:{port}"
        if not has_answer:
            yield (
                f"The node {node} does not answer {role or connection.settings_dict['USER']}: {answer}. The role needs "
                "LOGIN on every node, and pg_hba.conf or pg_dist_authinfo must let the nodes in as it."
            )
        elif answer != "1" and role is None:
            yield f"The node {node} has no extension vector: as a superuser there, run CREATE EXTENSION vector."


def _of_schema(plan: TablePlan) -> Iterator[str]:
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        yield "There are migrations to run: run `manage.py migrate` first."
    with connection.cursor() as cursor:
        cursor.execute(_OWNED_BY_ANOTHER, [plan.tables])
        for (table,) in cursor.fetchall():
            yield f"{table} belongs to another role: run `distribute` as its owner, by DATABASE_OWNER_URL."
        cursor.execute(_REFERS_TOO_EARLY, [plan.tables])
        for (table,) in cursor.fetchall():
            yield (
                f"{table} has an identity column and refers to a table that is on every node: undo the migration that "
                "made it, and let a later one make its foreign keys, after `distribute`."
            )
        cursor.execute(_UNIQUE_WITHOUT_OWNER, {"tables": list(plan.personal), "owner": OWNER_COLUMN})
        for table, index in cursor.fetchall():
            yield f"The unique index {index} of {table} does not contain {OWNER_COLUMN}: a migration has to add it."


def _of_rows(plan: TablePlan) -> Iterator[str]:
    """Rows without an owner, from early versions, belong on no node. The owner sees rows only while policies are not
    forced.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        for table in plan.personal:
            cursor.execute(
                "SELECT relforcerowsecurity, attnotnull FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid "
                "WHERE pg_class.oid = %s::regclass AND attname = %s",
                [table, OWNER_COLUMN],
            )
            is_forced, has_owners = cursor.fetchone()
            if has_owners:
                continue
            if is_forced:
                cursor.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
            cursor.execute(f"SELECT count(*) FROM {table} WHERE {OWNER_COLUMN} IS NULL")  # noqa: S608 - a name of ours
            (rows,) = cursor.fetchone()
            if rows:
                yield (
                    f"{table} has {rows} rows without an owner, which no node could hold: as a superuser, give them "
                    f"one in {OWNER_COLUMN}, or delete them."
                )
        transaction.set_rollback(True)


# 1. Look for obstacles, and change nothing where there is one (`core.citus.distribute`).
# 2. Take away the foreign keys: Citus makes none between a table that it has placed and one that it has not.
# 3. Make every table without an owner a reference table, a copy of which is on each node.
# 4. Give each personal table a primary key that begins with `user_id`, and distribute it by that, beside the others
#    of the same person. Policies are not forced meanwhile: they hide every row from the owner, who copies them.
# 5. Compare the number of rows with what it was, put the foreign keys back, and force the policies again.
#
# A table that was placed before is left alone, so `distribute` is run again after a migration that adds one.

Log = Callable[[str], None]
Cursor = CursorWrapper


# In the order in which Citus likes to place tables: one foreign key after another, on every shard.
# The longest wait for a table that is in use; meanwhile all other transactions wait for this one.
_SETTINGS = """
SET LOCAL citus.multi_shard_modify_mode = 'sequential';
SET LOCAL lock_timeout = '30s'
"""
_FOREIGN_KEYS = """
SELECT conrelid::regclass::text, quote_ident(conname), pg_get_constraintdef(oid), confrelid::regclass::text
  FROM pg_constraint
 WHERE contype = 'f' AND connamespace = 'public'::regnamespace AND conparentid = 0
   AND (conrelid = ANY(%(tables)s::regclass[]) OR confrelid = ANY(%(tables)s::regclass[]))
 ORDER BY conrelid::regclass::text, conname
"""
# Citus does not accept SET NULL in a key that contains the distribution column, even if that column is not set. The
# application clears these columns itself before it deletes, so the key only checks at the end.
_SET_NULL = re.compile(r"ON DELETE SET NULL \([^)]*\)")
_UNIQUE = """
SELECT quote_ident(conname), contype::text,
       ARRAY(SELECT attname::text
               FROM unnest(conkey) WITH ORDINALITY AS key(number, place)
               JOIN pg_attribute ON attrelid = conrelid AND attnum = number
              ORDER BY place)
  FROM pg_constraint WHERE contype IN ('p', 'u') AND conrelid = %s::regclass
"""


def distribute(*, log: Log) -> list[str]:
    """Place all tables that are not placed yet, as the owner of the tables; returns their names.

    Raises `CommandError` before anything has changed.
    """
    plan = plan_tables()
    found = obstacles(plan)
    if found:
        raise CommandError("\n".join(found))
    placed = placed_tables(connection)
    missing = TablePlan(
        tuple(table for table in plan.personal if table not in placed),
        tuple(table for table in plan.shared if table not in placed),
    )
    if missing.tables:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(_SETTINGS)
            with _without_foreign_keys(cursor, missing), _not_forced(cursor, missing):
                _place(cursor, missing, log)
    return missing.tables


def _place(cursor: Cursor, missing: TablePlan, log: Log) -> None:
    before = {table: _count(cursor, table) for table in missing.tables}
    for table in missing.shared:
        cursor.execute("SELECT create_reference_table(%s)", [table])
        log(f"{table}: a copy on every node, {before[table]} rows.")
    first = next((table for table, method in placed_tables(connection).items() if method == "h"), "default")
    for table in missing.personal:
        _begin_key_with_owner(cursor, table)
        cursor.execute("SELECT create_distributed_table(%s, %s, colocate_with => %s)", [table, OWNER_COLUMN, first])
        first = table if first == "default" else first
        log(f"{table}: by {OWNER_COLUMN}, {before[table]} rows.")
    for table, rows in before.items():
        after = _count(cursor, table)
        if after != rows:
            raise CommandError(f"{table} had {rows} rows and has {after} on the nodes: nothing has been changed.")
        # The copied rows still exist, hidden, in the table's own file.
        cursor.execute("SELECT truncate_local_data_after_distributing_table(%s)", [table])


@contextmanager
def _without_foreign_keys(cursor: Cursor, missing: TablePlan) -> Iterator[None]:
    cursor.execute(_FOREIGN_KEYS, {"tables": missing.tables})
    keys = cursor.fetchall()
    for table, name, *_ in keys:
        cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
    yield
    users = get_user_model()._meta.db_table
    for table, name, definition, other in keys:
        # To write a row on every node, Citus requires the right to write the referenced rows. Groups, permissions and
        # content types are never changed beside the rows that refer to them; Django deletes both together.
        if table in missing.shared and other != users:
            continue
        requested = _SET_NULL.sub("DEFERRABLE INITIALLY DEFERRED", definition)
        cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {requested}")


@contextmanager
def _not_forced(cursor: Cursor, missing: TablePlan) -> Iterator[None]:
    cursor.execute(
        "SELECT relname FROM pg_class WHERE oid = ANY(%s::regclass[]) AND relforcerowsecurity ORDER BY relname",
        [list(missing.tables)],
    )
    forced = [table for (table,) in cursor.fetchall()]
    for table in forced:
        cursor.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
    yield
    for table in forced:
        cursor.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")


def _begin_key_with_owner(cursor: Cursor, table: str) -> None:
    """Citus can enforce a unique key only if it contains the distribution column."""
    cursor.execute(_UNIQUE, [table])
    constraints = cursor.fetchall()
    ((key, columns),) = [(name, columns) for name, kind, columns in constraints if kind == "p"]
    if OWNER_COLUMN in columns:
        return
    requested = [OWNER_COLUMN, *columns]
    superfluous = [name for name, kind, columns in constraints if kind == "u" and columns == requested]
    changes = [f"ALTER {OWNER_COLUMN} SET NOT NULL", *(f"DROP CONSTRAINT {name}" for name in (key, *superfluous))]
    changes.append(f"ADD CONSTRAINT {key} PRIMARY KEY ({', '.join(requested)})")
    cursor.execute(f"ALTER TABLE {table} {', '.join(changes)}")
    # Workers and staff, who act as no user, find rows by their ids.
    cursor.execute(f"CREATE INDEX ON {table} ({', '.join(columns)})")


def _count(cursor: Cursor, table: str) -> int:
    cursor.execute(f"SELECT count(*) FROM {table}")  # noqa: S608 - a name of ours
    row: tuple[Any, ...] = cursor.fetchone()
    return int(row[0])


# Part of `manage.py check --database default`. It reads only catalogues, so it works with the application's role.


@register(Tags.database)
def check_distribution(databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    connection = connections["default"]
    if "default" not in (databases or ()) or not is_cluster(connection):
        return []
    existing = set(connection.introspection.table_names())
    distributed = {table for table, method in placed_tables(connection).items() if method == "h"}
    missing = sorted({model._meta.db_table for model in personal_models()} & existing - distributed)
    if not missing:
        return []
    return [
        Error(
            f"The database is a Citus cluster, and {', '.join(missing)} lie on its coordinator alone.",
            hint="Stop the application, run `manage.py distribute`, and start it again. See docs/scale.md.",
            id="core.E006",
        )
    ]
