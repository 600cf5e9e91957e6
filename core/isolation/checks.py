"""Checks before a process serves: the database refuses rows of other users, and fits this version of the product.

`manage.py check --database default` runs the same checks. They read the database's catalogue, not the migrations: a
migration that once ran does not prove the present state.
"""

import hashlib
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import environ
from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

DOCUMENTED = "See docs/isolation.md."

# A role with the owner's rights can switch the policies off.
_OWNED = """
    SELECT relname FROM pg_class
     WHERE oid = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name) AND pg_has_role(relowner, 'USAGE')
     ORDER BY relname
"""
_GUARDED = """
    SELECT relname FROM pg_class
     WHERE oid = ANY(SELECT to_regclass(name) FROM unnest(%s::text[]) AS name)
       AND relrowsecurity AND relforcerowsecurity
       AND EXISTS (SELECT FROM pg_policy WHERE polrelid = pg_class.oid AND %s = ANY(polroles::regrole[]::text[]))
"""


@checks.register(checks.Tags.database)
def check_isolation(databases: Sequence[str] | None = None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Run by `manage.py check --database default`; accepts either of the application's roles."""
    roles = settings.DATABASE_ROLES
    return [
        found for alias in databases or () for found in problems(connections[alias], roles=(roles.web, roles.worker))
    ]


def refuse_unless_isolated(role: str) -> None:
    """Raise `ImproperlyConfigured`, with a line per reason, unless the process logs in as `role`, the role is harmless,
    and every personal table is guarded: the process could show rows of other users.
    """
    found = problems(connections["default"], roles=(role,))
    if found:
        raise ImproperlyConfigured("\n".join(f"{one.id}: {one.msg} {one.hint}" for one in found))


def problems(connection: BaseDatabaseWrapper, *, roles: Sequence[str]) -> list[checks.CheckMessage]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
        name, is_mighty = cursor.fetchone()
        tables = [model._meta.db_table for model in personal_models()]
        cursor.execute(_OWNED, [tables])
        owned = [table for (table,) in cursor.fetchall()]
        cursor.execute(_GUARDED, [tables, settings.DATABASE_ROLES.web])
        unguarded = sorted(set(tables) - {table for (table,) in cursor.fetchall()})
    return list(_sentences(name, roles, is_mighty=is_mighty, owned=owned, unguarded=unguarded))


def personal_models() -> Iterator[type[models.Model]]:
    """Every model that refers to a user, except those for which `settings.NOT_PERSONAL` gives a reason."""
    user = get_user_model()
    for model in apps.get_models():
        refers = any(field.is_relation and field.related_model is user for field in model._meta.concrete_fields)
        if refers and model._meta.managed and model._meta.label not in settings.NOT_PERSONAL:
            yield model


def _sentences(
    name: str, roles: Sequence[str], *, is_mighty: bool, owned: Sequence[str], unguarded: Sequence[str]
) -> Iterator[checks.Error]:
    if is_mighty:
        yield checks.Error(
            f"The database role {name} is a superuser or passes over row-level security.",
            hint=f"Run `manage.py create_roles` and put {roles[0]} into DATABASE_URL. {DOCUMENTED}",
            id="core.E001",
        )
    if owned:
        yield checks.Error(
            f"The database role {name} owns {', '.join(owned)}, so it could switch row-level security off.",
            hint=f"Put {roles[0]} into DATABASE_URL, and the owner into DATABASE_OWNER_URL alone. {DOCUMENTED}",
            id="core.E002",
        )
    if unguarded:
        yield checks.Error(
            f"No forced row-level security guards {', '.join(unguarded)}.",
            hint="Run `manage.py migrate`; for a new table, add `isolate(…)` to its migration. "
            f"A table without owners is named in NOT_PERSONAL. {DOCUMENTED}",
            id="core.E003",
        )
    if name not in roles and not is_mighty and not owned:
        yield checks.Error(
            f"The database role is {name}, and the policies know {' and '.join(roles)}.",
            hint=f"Put {roles[0]} into DATABASE_URL, or its prefix into DATABASE_ROLE_PREFIX. {DOCUMENTED}",
            id="core.E004",
        )


# --- Connects as another role for a while: as the owner for migrations, as the worker for its work outside a worker ---

# The login and host of an address. The database is the current one, also in tests and scratch databases.
OF_THE_ADDRESS = ("USER", "PASSWORD", "HOST", "PORT")


@contextmanager
def connected_as(url: str) -> Iterator[None]:
    """Within the block this thread uses a separate connection, made with `url`, to its current database.

    The thread's other connection, and any transaction open on it, stay unchanged.
    """
    kept = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = type(kept)(parameters(url, name=kept.settings_dict["NAME"]), DEFAULT_DB_ALIAS)
    try:
        yield
    finally:
        connection.close()
        connections[DEFAULT_DB_ALIAS] = kept


@contextmanager
def connected_as_owner() -> Iterator[None]:
    """Connect with DATABASE_OWNER_URL; without it, DATABASE_URL is taken as the owner's."""
    if not settings.DATABASE_OWNER_URL:
        yield
        return
    with connected_as(settings.DATABASE_OWNER_URL):
        yield


@contextmanager
def connected_as_worker() -> Iterator[None]:
    """Connect with DATABASE_WORKER_URL; a process without it already is a worker."""
    if not settings.DATABASE_WORKER_URL:
        yield
        return
    with connected_as(settings.DATABASE_WORKER_URL):
        yield


def parameters(url: str, *, name: str, pool: dict[str, Any] | None = None) -> dict[str, Any]:
    """Settings of a connection, outside the pool unless it is named."""
    parsed = environ.Env.db_url_config(url)
    login = {key: parsed[key] for key in OF_THE_ADDRESS}
    options = {**parsed.get("OPTIONS", {}), "connect_timeout": 5, **({"pool": pool} if pool else {})}
    return {**connections.settings[DEFAULT_DB_ALIAS], **login, "NAME": name, "OPTIONS": options}


# The two logins of a worker, of which each task uses one: a web process's, by which it acts as users, or its own.
WEB, WORKER = "web", "worker"
_logins: dict[str, dict[str, Any]] = {}
_of_thread = threading.local()


def add_logins_of_a_worker() -> None:
    """Name both logins; a process with one address alone has one, and runs the tasks of its role only."""
    own, url = connections.settings[DEFAULT_DB_ALIAS], settings.DATABASE_WORKER_URL
    pool = own["OPTIONS"]["pool"]
    _logins[WEB], _logins[WORKER] = own, parameters(url, name=own["NAME"], pool=pool) if url else own


def use_login(name: str) -> None:
    """Have this thread use one of a worker's logins from now on; any other process has one login for everything."""
    if name in _logins:
        mine = _of_thread.__dict__
        mine[name] = mine.get(name) or type(connections[DEFAULT_DB_ALIAS])(_logins[name], name)
        # Under its own name too, by which it has a pool and Django finds it when it connects.
        connections[name] = connections[DEFAULT_DB_ALIAS] = mine[name]


# --- Compares the database with this version: its tables with the models, its migrations with their recorded hashes ---
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
