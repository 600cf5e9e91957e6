"""Distributes the migrated schema over a Citus cluster, in one transaction: all of it is placed or nothing changes.

1. Look for obstacles, and change nothing where there is one (`core.distribution.obstacles`).
2. Take away the foreign keys: Citus makes none between a table that it has placed and one that it has not.
3. Make every table without an owner a reference table, a copy of which is on each node.
4. Give each personal table a primary key that begins with `user_id`, and distribute it by that, beside the others
   of the same person. Policies are not forced meanwhile: they hide every row from the owner, who copies them.
5. Compare the number of rows with what it was, put the foreign keys back, and force the policies again.

A table that was placed before is left alone, so `distribute` is run again after a migration that adds one.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from core.distribution.obstacles import CannotDistribute, obstacles
from core.distribution.plan import OWNER_COLUMN, TablePlan, plan_tables
from core.isolation.cluster import placed_tables

Log = Callable[[str], None]
Cursor = CursorWrapper

# The longest wait for a table that is in use; meanwhile all other transactions wait for this one.
LOCK_SECONDS = 30

# In the order in which Citus likes to place tables: one foreign key after another, on every shard.
_SETTINGS = f"""
SET LOCAL citus.multi_shard_modify_mode = 'sequential';
SET LOCAL lock_timeout = '{LOCK_SECONDS}s'
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

    Raises `CannotDistribute` before anything has changed.
    """
    plan = plan_tables()
    found = obstacles(plan)
    if found:
        raise CannotDistribute("\n".join(found))
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
            raise CannotDistribute(f"{table} had {rows} rows and has {after} on the nodes: nothing has been changed.")
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
        wanted = _SET_NULL.sub("DEFERRABLE INITIALLY DEFERRED", definition)
        cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT {name} {wanted}")


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
    wanted = [OWNER_COLUMN, *columns]
    superfluous = [name for name, kind, columns in constraints if kind == "u" and columns == wanted]
    changes = [f"ALTER {OWNER_COLUMN} SET NOT NULL", *(f"DROP CONSTRAINT {name}" for name in (key, *superfluous))]
    changes.append(f"ADD CONSTRAINT {key} PRIMARY KEY ({', '.join(wanted)})")
    cursor.execute(f"ALTER TABLE {table} {', '.join(changes)}")
    # Workers and staff, who act as no user, find rows by their ids.
    cursor.execute(f"CREATE INDEX ON {table} ({', '.join(columns)})")


def _count(cursor: Cursor, table: str) -> int:
    cursor.execute(f"SELECT count(*) FROM {table}")  # noqa: S608 - a name of ours
    row: tuple[Any, ...] = cursor.fetchone()
    return int(row[0])
