"""Compares the database with this version: its tables with the models, its migrations with their recorded hashes."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from django.apps import apps
from django.conf import settings
from django.core.management import CommandError
from django.db import DatabaseError, connection

# A migration that exists is frozen. A database that applied it has no way to learn of a later change to the file, so a
# changed file would leave old data without a column that the code reads.


# In the format of `sha256sum`, which can check it too.
RECORDED = Path(__file__).with_name("migrations.sha256")
# How many differences a sentence names.
NAMED = 3

_COLUMNS = """
SELECT relname, attname, format_type(atttypid, atttypmod),
       attnotnull AND NOT atthasdef AND attidentity = ''
  FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
   AND attnum > 0 AND NOT attisdropped
"""
# Django's names of types that PostgreSQL calls otherwise.
_SYNONYMS = {
    "varchar": "character varying",
    "char": "character",
    "varbit": "bit varying",
    "serial": "integer",
    "bigserial": "bigint",
}
# A column may be wider: Django's own migrations made some keys so.
_WIDER = {"integer": "bigint", "smallint": "integer"}


def unfitting(differences: list[str]) -> CommandError:
    """The database does not fit this version: a sentence that says how to carry the data over."""
    named = "; ".join(differences[:NAMED])
    more = f"; and {len(differences) - NAMED} more" if len(differences) > NAMED else ""
    return CommandError(
        f"The database does not fit this version of Recollect ({named}{more}): export the data with the version that "
        'wrote them and import them here, as docs/operations.md says under "Data of another version".'
    )


class TableColumn(NamedTuple):
    """A column as PostgreSQL describes it. `needs_a_value`: a row cannot be written without it."""

    type: str
    needs_a_value: bool = False


Tables = dict[str, dict[str, TableColumn]]


def tables_found() -> Tables:
    """The columns of every table of the database, in the order of their definition; one query."""
    found: Tables = {}
    with connection.cursor() as cursor:
        cursor.execute(f"{_COLUMNS} ORDER BY relname, attnum")
        for table, column, kind, needs_a_value in cursor.fetchall():
            found.setdefault(str(table), {})[str(column)] = TableColumn(str(kind), bool(needs_a_value))
    return found


def tables_expected() -> Tables:
    """The columns of every managed model, those of this product and of the packages it uses."""
    expected: Tables = {}
    for model in apps.get_models(include_auto_created=True):
        if model._meta.managed and not model._meta.proxy:
            expected[model._meta.db_table] = {
                str(field.column): TableColumn(_in_postgresql(kind))
                for field in model._meta.concrete_fields
                if (kind := field.db_type(connection))
            }
    return expected


def differences() -> list[str]:
    """What the code would stumble over: missing tables and columns, other types, unknown columns that need a value."""
    found = tables_found()
    return [
        difference
        for table, columns in sorted(tables_expected().items())
        for difference in _differences_of(table, columns, found.get(table))
    ]


def refuse_unless_fitting() -> None:
    """Raise `CommandError` if the tables differ from the models."""
    if found := differences():
        raise unfitting(found)


def _differences_of(
    table: str, requested: dict[str, TableColumn], found: dict[str, TableColumn] | None
) -> Iterator[str]:
    if found is None:
        yield f"the table {table} is missing"
        return
    for name, column in requested.items():
        if name not in found:
            yield f"{table}.{name} is missing"
        elif found[name].type not in (column.type, _WIDER.get(column.type)):
            yield f"{table}.{name} is {found[name].type} instead of {column.type}"
    for name in found.keys() - requested.keys():
        if found[name].needs_a_value:
            yield f"{table}.{name} is unknown and needs a value"


def _in_postgresql(kind: str) -> str:
    """A type as `format_type` writes it: `varchar(5)` is `character varying(5)`."""
    name, rest = re.fullmatch(r"([a-z ]+)(.*)", re.sub(r",\s+", ",", kind), re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{_SYNONYMS.get(name, name)}{rest}"


def migration_hashes() -> dict[str, str]:
    """The SHA-256 of each migration of this product, by its path below the project."""
    files = sorted(settings.BASE_DIR.glob("*/migrations/[0-9]*.py"))
    return {
        path.relative_to(settings.BASE_DIR).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def recorded_hashes() -> dict[str, str]:
    lines = RECORDED.read_text().splitlines() if RECORDED.exists() else []
    return {path: digest for digest, path in (line.split("  ", 1) for line in lines)}


def record_new_migrations() -> list[str]:
    """Record the hashes of new files, and only of those; returns their paths."""
    recorded, present = recorded_hashes(), migration_hashes()
    new = sorted(present.keys() - recorded.keys())
    known = recorded | {path: present[path] for path in new}
    RECORDED.write_text("".join(f"{digest}  {path}\n" for path, digest in sorted(known.items())))
    return new


def applied_migrations() -> dict[str, str]:
    """The hashes of this product's migrations that the database has applied, by their paths.

    Raises `DatabaseError`.
    """
    present = migration_hashes()
    with connection.cursor() as cursor:
        cursor.execute("SELECT app, name FROM django_migrations")
        paths = [f"{app}/migrations/{name}.py" for app, name in cursor.fetchall()]
    return {path: present[path] for path in sorted(paths) if path in present}


def reads_a_login() -> bool:
    """Whether the rows that a log-in reads can be read: all columns of users, sessions and second factors."""
    try:
        for label in ("intake.User", "intake.Session", "mfa.Authenticator", "account.EmailAddress"):
            apps.get_model(label)._meta.default_manager.filter(pk__isnull=False).order_by("pk").first()
    except DatabaseError:
        return False
    return True
