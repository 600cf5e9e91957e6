"""Restores a backup: carries its rows into this version's tables, and compares the contents.

Carries the rows of a backup of another version into the tables of this one, column by column.

A backup's own migrations say which tables it holds. Those of this version, run over the backup's tables, would be right
only if every applied one is the file that this version has: otherwise the tables that this version makes are filled.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterator
from typing import Any

from allauth.mfa.models import Authenticator
from django.apps import apps
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from django.db.models import NOT_PROVIDED, Field
from psycopg import sql

from config.ops import backup
from config.ops.backup import CARRIED, run_each
from core.isolation.acting import acting_as
from core.isolation.checks import TableColumn, applied_migrations, connected_as_owner, migration_hashes, tables_found
from intake.accounts.adapters import is_readable
from intake.models import Turn, User
from memory.search.chat_history import SearchMode, search_chat_history

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

    Returns a sentence for each table and column that is new or gone. Raises `CommandError` if rows do not fit.
    """
    with connected_as_owner(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {CARRIED}")
        run_each(cursor, _MOVE_TABLES)
        run_each(cursor, _MOVE_ROUTINES)
    call_command("migrate", verbosity=0, interactive=False)
    try:
        with connected_as_owner(), transaction.atomic(), connection.cursor() as cursor:
            notes = _carry_all(cursor)
            cursor.execute(f"DROP SCHEMA {CARRIED} CASCADE")
    except DatabaseError as error:
        first_line = str(error).strip().splitlines()[0]
        raise CommandError(
            f"The backup's rows do not fit this version ({first_line}): nothing of it is used."
        ) from error
    # Kinds of rows and rights that this version has and the backup had not.
    call_command("migrate", verbosity=0, interactive=False)
    return notes


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
    notes = [sentence for table in shared for sentence in _carry(cursor, table, before[table], now[table])]
    for table in sorted(before.keys() - now.keys()):
        cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(CARRIED, table)))
        notes.append(f"{table}: this version has no such table; its {cursor.fetchone()[0]:,} rows are left out.")
    notes += [f"{table}: a new table, empty." for table in sorted(now.keys() - before.keys())]
    for _, put_back in references:
        cursor.execute(put_back)
    cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for statement in forced_again:
        if f"{CARRIED}." not in statement:
            cursor.execute(statement)
    return notes


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
    notes = [f"{table}.{name}: new, with its default in {rows:,} rows." for name in sorted(writable - before.keys())]
    for name in sorted(before.keys() - now.keys()):
        if not before[name].is_generated:
            cursor.execute(sql.SQL(_FILLED).format(source, sql.Identifier(name)))
            notes.append(
                f"{table}.{name}: this version has no such column; {cursor.fetchone()[0]:,} values are left out."
            )
    return notes


def _compare(cursor: Any, table: str, columns: list[str]) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    found = []
    for schema in (CARRIED, "public"):
        cursor.execute(sql.SQL(_COMPARED).format(names, sql.Identifier(schema, table)))
        found.append(cursor.fetchone())
    if found[0] != found[1]:
        raise CommandError(f"{table}: the rows are not as they were in the backup: nothing of it is used.")


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


# --- Summarises a database, to compare a backup with a product: rows and a hash per table, one search per user ---

# Makes the text of every value the same on all servers: times, floats, intervals and bytes.
_ONE_WAY_OF_WRITING = """
SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, MDY'; SET LOCAL IntervalStyle = 'postgres';
SET LOCAL extra_float_digits = 1; SET LOCAL bytea_output = 'hex'
"""
_TABLES = """
SELECT relname FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
 ORDER BY relname
"""
# A sum does not depend on the order of the rows.
_COUNT = "SELECT count(*), coalesce(sum(hashtextextended(item::text, 0)::numeric), 0)::text FROM {} AS item"

# Settings that must be equal for a restored product to answer alike. No secrets.

# Filled by migrations and for each version anew.
OF_THE_VERSION = ("django_migrations", "django_content_type", "auth_permission")
SETTINGS = ("TEXT_SEARCH_CONFIG", "HISTORY_DECAY_RATE", "HISTORY_WEIGHTS")

# The number of a user's search results to check.
SEARCHED = 20
QUERY_LENGTH = 200


def tables() -> dict[str, dict[str, Any]]:
    """Of every table the number of its `rows`, and as `hash` the sum of their hashes, equal only for equal rows in any
    order; as this transaction sees it. The connection's role must pass row-level security.
    """
    with connection.cursor() as cursor:
        cursor.execute(_ONE_WAY_OF_WRITING)
        cursor.execute(_TABLES)
        names = [str(name) for (name,) in cursor.fetchall()]
        found = {}
        for name in names:
            cursor.execute(sql.SQL(_COUNT).format(sql.Identifier(name)))
            found[name] = dict(zip(("rows", "hash"), cursor.fetchone(), strict=True))
    return found


def kept_settings() -> dict[str, Any]:
    return {name: getattr(settings, name) for name in SETTINGS}


# Workers pack these while the product runs, and no row of a person is in them alone. A search of each user follows.
PACKED = ("embedding_blocks", "embeddings", "pending_terms", "term_blocks", "term_segments")


def differences(manifest: dict[str, Any], *, was_just_restored: bool = False) -> Iterator[str]:
    """A sentence for each table of this product that differs from the backup.

    A product of another version has other columns in some tables, and lists of its own of what a version consists of:
    such tables are compared by their number of rows, if at all, unless the backup `was_just_restored` as it is. The
    index is compared as it is then, too: later its workers have packed it in another way.
    """
    requested: dict[str, dict[str, Any]] = manifest["tables"]
    with backup.reading_everything():
        found = tables()
        changed = set() if was_just_restored else _changed_tables(manifest)
        is_other_version = not was_just_restored and _is_of_another_version(manifest)
    for name in sorted(requested.keys() | found.keys()):
        before, now = requested.get(name), found.get(name)
        if is_other_version and (name in OF_THE_VERSION or before is None or now is None):
            continue
        if before is None or now is None:
            yield f"{name}: only in the {'product' if before is None else 'backup'}."
        elif name in PACKED and not was_just_restored and (name != "embeddings" or before["rows"] == now["rows"]):
            continue
        elif before["rows"] != now["rows"]:
            yield f"{name}: {before['rows']:,} rows in the backup, {now['rows']:,} in the product."
        elif before["hash"] != now["hash"] and name not in changed:
            yield f"{name}: as many rows ({now['rows']:,}) with other contents."


def changed_settings(manifest: dict[str, Any]) -> Iterator[str]:
    """A sentence for each setting with which this product answers in another way than the backup's.

    A part that the backup's version did not have, such as the weight of a new source, is no difference.
    """
    for name, value in kept_settings().items():
        before = manifest["settings"].get(name, value)
        now = {part: value.get(part) for part in before} if isinstance(before, dict) else value
        if now != before:
            yield f"The setting {name} was {before} and is {now}."


def compared_by_number(manifest: dict[str, Any]) -> Iterator[str]:
    """A sentence about the tables that this version has changed, if there are any."""
    with backup.reading_everything():
        changed = _changed_tables(manifest) & manifest["tables"].keys()
    if changed:
        yield (
            f"The backup is of another version: {len(changed)} tables have other columns here and are compared by "
            "their number of rows."
        )


def _changed_tables(manifest: dict[str, Any]) -> set[str]:
    """The tables with other columns than in the backup; all of them, if it does not name its columns."""
    found = {table: {name: column.type for name, column in one.items()} for table, one in tables_found().items()}
    before = manifest.get("columns", {})
    return {table for table, columns in found.items() if before.get(table) != columns}


def _is_of_another_version(manifest: dict[str, Any]) -> bool:
    return bool(manifest.get("migrations") != applied_migrations())


def fingerprint(key: str, salt: str | None = None) -> dict[str, str]:
    """Recognises a key, and is of no use for guessing it: a slow digest with a salt."""
    salt = salt or secrets.token_hex(16)
    digest = hashlib.scrypt(key.encode(), salt=bytes.fromhex(salt), **backup.SCRYPT)
    return {"salt": salt, "digest": digest.hex()}


def about_the_key(manifest: dict[str, Any], *, counts: bool = True) -> Iterator[str]:
    """A sentence if this product has another SECRET_KEY than the backup, or cannot open what the key has encrypted."""
    known = manifest.get("secret_key")
    keys = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    digests = [fingerprint(each, known["salt"])["digest"] for each in keys] if known else []
    if known and not any(hmac.compare_digest(digest, known["digest"]) for digest in digests):
        yield (
            "SECRET_KEY is another one than in the product that the backup is of: put that one into SECRET_KEY, or "
            "into SECRET_KEY_FALLBACKS beside this one (docs/operations.md says where to find it)."
        )
    if counts and (lost := _unreadable_factors()):
        yield (
            f"{lost:,} authenticator apps and sets of recovery codes cannot be opened with this SECRET_KEY: their "
            "owners log in with a recovery code that is kept as a digest, or with a passkey."
        )


def _unreadable_factors() -> int:
    with backup.reading_everything():
        rows = list(Authenticator.objects.values_list("data", flat=True))
    return sum(not is_readable(data) for data in rows)


def total_rows(manifest: dict[str, Any]) -> int:
    return sum(int(table["rows"]) for table in manifest["tables"].values())


def failing_searches() -> Iterator[str]:
    """A sentence for each user whose latest indexed message is not found by a search for its own beginning."""
    for user_id in list(User.objects.filter(is_visitor=False).order_by("pk").values_list("pk", flat=True)):
        user = User.objects.get(pk=user_id)
        with acting_as(user):
            if not _finds_itself(user):
                yield f"User {user_id}: a search for a message of theirs does not find it."


def _finds_itself(user: User) -> bool:
    complete = Turn.objects.for_user(user).filter(status=Turn.Status.COMPLETE, is_recall=False)
    turn = complete.order_by("-pk").first()
    if turn is None:
        return True
    query = " ".join(turn.user_message.split())[:QUERY_LENGTH]
    found = search_chat_history(user=user, query=query, limit=SEARCHED, mode=SearchMode.HYBRID)
    # The user may have written the same text more often than a search has results.
    return any(turn.user_message.startswith(hit.snippet) for hit in found.matches if hit.snippet is not None)
