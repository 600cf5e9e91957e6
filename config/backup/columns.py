"""Carries the rows of a backup of another version into the tables of this one, column by column.

A backup's own migrations say which tables it holds. Those of this version, run over the backup's tables, would be right
only if every applied one is the file that this version has: otherwise the tables that this version makes are filled.
"""

from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.models import NOT_PROVIDED, Field
from psycopg import sql

from config.backup import CARRIED, BackupError
from config.backup.server import run_each
from core.isolation.connections import connected_as_owner
from core.schema import TableColumn, migration_hashes, tables_found

# Written by the migrations themselves.
_LEFT_OUT = "django_migrations"

_MOVE_TABLES = """
SELECT format('ALTER TABLE %I.%I SET SCHEMA restored_from_backup', relnamespace::regnamespace, relname) FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
   AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND deptype = 'e')
"""
_MOVE_ROUTINES = """
SELECT format('ALTER ROUTINE %s SET SCHEMA restored_from_backup', oid::regprocedure) FROM pg_proc
 WHERE pronamespace = 'public'::regnamespace
   AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_proc.oid AND deptype = 'e')
"""
# Row-level security binds the owner too, until it is put back in the same transaction.
_FORCED = """
SELECT format('ALTER TABLE %s {} ROW LEVEL SECURITY', oid::regclass) FROM pg_class
 WHERE relnamespace IN ('public'::regnamespace, 'restored_from_backup'::regnamespace) AND relforcerowsecurity
"""
# Tables refer to each other in circles: their references are checked after all rows are there.
_REFERENCES = """
SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname),
       format('ALTER TABLE %s ADD CONSTRAINT %I %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
  FROM pg_constraint
 WHERE connamespace = 'public'::regnamespace AND contype = 'f' AND conparentid = 0
"""
_COMPARED = "SELECT count(*), coalesce(sum(hashtextextended(ROW({})::text, 0)::numeric), 0) FROM {}"
_FILLED = "SELECT count(*) FROM {} WHERE {} IS NOT NULL"


def is_of_other_migrations(manifest: dict[str, Any]) -> bool:
    """Whether a migration of the backup is another one here, or unknown; also of a backup that does not say."""
    present = migration_hashes()
    applied = manifest.get("migrations")
    return applied is None or any(present.get(path) != digest for path, digest in applied.items())


def carry_over() -> list[str]:
    """Fill this version's tables with the rows of the restored ones.

    Returns a sentence for each table and column that is new or gone. Raises `BackupError` if rows do not fit.
    """
    with connected_as_owner(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {CARRIED}")
        run_each(cursor, _MOVE_TABLES)
        run_each(cursor, _MOVE_ROUTINES)
    call_command("migrate", verbosity=0, interactive=False)
    try:
        with connected_as_owner(), transaction.atomic(), connection.cursor() as cursor:
            said = _carry_all(cursor)
            cursor.execute(f"DROP SCHEMA {CARRIED} CASCADE")
    except DatabaseError as error:
        first_line = str(error).strip().splitlines()[0]
        raise BackupError(
            f"The backup's rows do not fit this version ({first_line}): nothing of it is used."
        ) from error
    # Kinds of rows and rights that this version has and the backup had not.
    call_command("migrate", verbosity=0, interactive=False)
    return said


def _carry_all(cursor: Any) -> list[str]:
    cursor.execute(_FORCED.format("FORCE"))
    forced_again = [statement for (statement,) in cursor.fetchall()]
    run_each(cursor, _FORCED.format("NO FORCE"))
    cursor.execute(_REFERENCES)
    references = cursor.fetchall()
    for without, _ in references:
        cursor.execute(without)
    before, now = tables_found(CARRIED), tables_found()
    shared = sorted((before.keys() & now.keys()) - {_LEFT_OUT})
    if shared:
        names = sql.SQL(", ").join(sql.Identifier("public", name) for name in shared)
        cursor.execute(sql.SQL("TRUNCATE {}").format(names))
    said = [sentence for table in shared for sentence in _carry(cursor, table, before[table], now[table])]
    for table in sorted(before.keys() - now.keys()):
        cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(CARRIED, table)))
        said.append(f"{table}: this version has no such table; its {cursor.fetchone()[0]:,} rows are left out.")
    said += [f"{table}: a new table, empty." for table in sorted(now.keys() - before.keys())]
    for _, put_back in references:
        cursor.execute(put_back)
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for statement in forced_again:
        if f"{CARRIED}." not in statement:
            cursor.execute(statement)
    return said


def _carry(cursor: Any, table: str, before: dict[str, TableColumn], now: dict[str, TableColumn]) -> list[str]:
    writable = {name for name, column in now.items() if not column.is_generated}
    kept = [name for name in before if name in writable]
    defaults = {name: value for name in writable - before.keys() if (value := _default(table, name)) is not None}
    source, target = sql.Identifier(CARRIED, table), sql.Identifier("public", table)
    columns = sql.SQL(", ").join(map(sql.Identifier, [*kept, *defaults]))
    values = sql.SQL(", ").join([*map(sql.Identifier, kept), *[sql.Placeholder()] * len(defaults)])
    # Assigned and not cast: a cast would cut a text that is too long for its column here.
    statement = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM {}")
    cursor.execute(statement.format(target, columns, values, source), list(defaults.values()))
    rows = cursor.rowcount
    _compare(cursor, table, [name for name in kept if before[name].type == now[name].type])
    _continue_numbers(cursor, table, now)
    said = [f"{table}.{name}: new, with its default in {rows:,} rows." for name in sorted(writable - before.keys())]
    for name in sorted(before.keys() - now.keys()):
        if not before[name].is_generated:
            cursor.execute(sql.SQL(_FILLED).format(source, sql.Identifier(name)))
            said.append(
                f"{table}.{name}: this version has no such column; {cursor.fetchone()[0]:,} values are left out."
            )
    return said


def _compare(cursor: Any, table: str, columns: list[str]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    found = []
    for schema in (CARRIED, "public"):
        cursor.execute(sql.SQL(_COMPARED).format(names, sql.Identifier(schema, table)))
        found.append(cursor.fetchone())
    if found[0] != found[1]:
        raise BackupError(f"{table}: the rows are not as they were in the backup: nothing of it is used.")


def _continue_numbers(cursor: Any, table: str, columns: dict[str, TableColumn]) -> None:
    """The next number of each counting column comes after the highest."""
    for name, column in columns.items():
        if column.type in ("integer", "bigint", "smallint"):
            cursor.execute("SELECT pg_get_serial_sequence(%s, %s)", [f'public."{table}"', name])
            if (sequence := cursor.fetchone()[0]) is not None:
                highest = sql.SQL("SELECT setval({}, (SELECT max({}) FROM {}), true)").format(
                    sql.Literal(sequence), sql.Identifier(name), sql.Identifier("public", table)
                )
                cursor.execute(highest)


def _default(table: str, column: str) -> Any:
    """The model's default for a new column, as the database takes it; None leaves it to the database."""
    fields: list[Field[Any, Any]] = [
        field
        for model in apps.get_models(include_auto_created=True)
        if model._meta.db_table == table
        for field in model._meta.concrete_fields
        if field.column == column
    ]
    if not fields or fields[0].db_default is not NOT_PROVIDED:
        return None
    value = fields[0].get_default()
    return None if value is None else fields[0].get_db_prep_save(value, connection)
