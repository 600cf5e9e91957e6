"""Empties the tables after a test that commits, much faster than Django's `flush`; and compares the schema itself."""

from typing import Any

from django.db import OperationalError, connection, connections, transaction
from django.db.models import QuerySet
from psycopg.errors import DeadlockDetected

from core.isolation.acting import is_cluster

# Migrations filled these and no test changes them; `flush` would empty and refill them.
KEPT = {"django_content_type", "auth_permission"}
TRIES = 5


def empty(alias: str) -> None:
    """Delete every row of every table except those in KEPT.

    Like TRUNCATE, it first waits for transactions that are still writing. If one of them waits for it too, PostgreSQL
    ends one of the two, and if it is this one, it starts again. It deletes only from tables with rows, because most
    tests write to a few, and leaves the files of the others alone.
    """
    for tries_left in reversed(range(TRIES)):
        try:
            _empty(alias)
        except OperationalError as error:
            if not (tries_left and isinstance(error.__cause__, DeadlockDetected)):
                raise
        else:
            break


def _empty(alias: str) -> None:
    connection = connections[alias]
    names = set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - KEPT
    tables = sorted(connection.ops.quote_name(name) for name in names)
    with transaction.atomic(using=alias), connection.cursor() as cursor:
        if is_cluster(connection):
            # A table on every node is emptied after the others, whose shards must then have been changed one after the
            # other.
            cursor.execute("SET LOCAL citus.multi_shard_modify_mode TO 'sequential'")
        cursor.execute(f"LOCK TABLE {', '.join(tables)} IN EXCLUSIVE MODE")
        # With a column, because Citus requires one in the subquery.
        cursor.execute("SELECT " + ", ".join(f"EXISTS (SELECT 1 FROM {table})" for table in tables))
        for table, has_rows in zip(tables, cursor.fetchone(), strict=True):
            if has_rows:
                cursor.execute(f"DELETE FROM {table}")


def delete_past_signals(rows: "QuerySet[Any]") -> None:
    """Delete as at the psql prompt: without Django's signals."""
    table = connection.ops.quote_name(rows.model._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table} WHERE id = ANY(%s)", [list(rows.values_list("id", flat=True))])


# Names alone: a column, a table or a role that is made anew has another number.
_SCHEMA = """
SELECT format('%s.%s is %s %s %s', relname, attname, format_type(atttypid, atttypmod),
              CASE WHEN attnotnull THEN 'not null' END, pg_get_expr(adbin, adrelid)) AS line
  FROM pg_attribute
  JOIN pg_class ON pg_class.oid = attrelid
  LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
 UNION ALL
SELECT format('%s is guarded: %s, forced: %s', relname, relrowsecurity, relforcerowsecurity)
  FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
 UNION ALL
SELECT format('%s has policy %s to %s for %s: %s, %s', tablename, policyname, roles, cmd, qual, with_check)
  FROM pg_policies
 UNION ALL
SELECT format('%s may be used: %s', relname, granted)
  FROM pg_class, unnest(relacl) AS granted WHERE relnamespace = 'public'::regnamespace
 UNION ALL
SELECT format('%s.%s may be used: %s', attrelid::regclass, attname, granted)
  FROM pg_attribute, unnest(attacl) AS granted
 UNION ALL
SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
 UNION ALL
SELECT format('%s has constraint %s: %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace
"""


def schema_digest() -> str:
    """A digest of tables, indexes, constraints, policies and rights: a test that changes them must undo that."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT md5(string_agg(line, ';' ORDER BY line)) FROM ({_SCHEMA}) AS lines")
        return str(cursor.fetchone()[0])


def schema_lines() -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute(_SCHEMA)
        return {line for (line,) in cursor.fetchall()}
