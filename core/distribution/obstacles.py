"""Finds everything that prevents the distribution of the schema, each with a sentence that says how to fix it."""

from collections.abc import Iterator

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor

from core.distribution.plan import OWNER_COLUMN, TablePlan
from core.isolation.acting import is_cluster
from core.isolation.cluster import nodes

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


class CannotDistribute(Exception):
    """The message has one line for each obstacle."""


def obstacles(plan: TablePlan) -> list[str]:
    """Run as the owner of the tables. Returns an empty list if the schema can be distributed."""
    if not is_cluster(connection):
        return ["This database has no extension citus: `distribute` is for the coordinator of a Citus cluster."]
    return list(_of_cluster()) or [*_of_nodes(), *_of_schema(plan), *_of_rows(plan)]


def _of_cluster() -> Iterator[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT groupid FROM pg_dist_local_group")
        (group,) = cursor.fetchone()
    if group:
        yield "This is a node of the cluster: put the coordinator's address into DATABASE_OWNER_URL."
    elif not any(node.has_shards for node in nodes(connection)):
        yield "The coordinator knows no node that takes rows: add some by `SELECT citus_add_node('host', port)`."


def _of_nodes() -> Iterator[str]:
    """Every node must have pgvector and admit each of the roles: a node is queried as the role that queries the
    coordinator.
    """
    for role in (None, *settings.DATABASE_ROLES.all):
        yield from _of_nodes_as(role)


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
    for host, port, is_answered, answer in answers:
        node = f"{host}:{port}"
        if not is_answered:
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
