"""Creates the database roles of the application on a server. Does not depend on Django.

The owner runs the migrations and owns the tables; nothing else uses it. The web role and the worker role log in.
Neither is a superuser, bypasses policies, owns a table or can create roles. Staff and the role of callers who are bound
to a project do not log in: the web role switches to them for a transaction, and otherwise has none of their rights.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from psycopg import sql

ServerConnection = psycopg.Connection[Any]

DEFAULT_PREFIX = "recollect"
# Another process may create the same roles at this moment, in another database of the server.
LOST_RACES = (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation, psycopg.errors.InternalError_)

# The longest transaction of a role, also of a process that has lost its way: requests end theirs far earlier
# (core/resilience.py). An import's or a deletion's batch takes seconds.
LONGEST_TRANSACTION = "1h"
LONGEST_IDLE_TRANSACTION = "15min"
TRANSACTION_TIMEOUT_SINCE = 170_000


@dataclass(frozen=True, slots=True)
class Roles:
    """Roles belong to a whole server: two installations on one of them need two prefixes."""

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", self.prefix):
            raise ValueError(
                f"DATABASE_ROLE_PREFIX is {self.prefix!r}: it must be lower-case letters, digits and underscores."
            )

    @property
    def web(self) -> str:
        return f"{self.prefix}_web"

    @property
    def worker(self) -> str:
        return f"{self.prefix}_worker"

    @property
    def staff(self) -> str:
        return f"{self.prefix}_staff"

    @property
    def bound(self) -> str:
        """Of callers who are bound to a project. A server from before there were such callers may lack it."""
        return f"{self.prefix}_bound"

    @property
    def all(self) -> tuple[str, str, str]:
        """The roles that every server needs."""
        return self.web, self.worker, self.staff


def make_roles(server: ServerConnection, roles: Roles, *, passwords: Mapping[str, str]) -> None:
    """Make the roles that are missing and give those named in `passwords` theirs; doing it twice changes nothing.

    `server` is a connection in autocommit of a superuser, or of a role with CREATEROLE. Raises `ImproperlyConfigured`.
    """
    try:
        with _alone(server):
            _make_roles(server, roles, passwords)
    except psycopg.errors.InsufficientPrivilege as error:
        raise ImproperlyConfigured(
            f"The role {server.info.user} may not make or change {', '.join(roles.all)}: do it as a role with "
            "CREATEROLE that made them, or as a superuser."
        ) from error
    for name in (*roles.all, roles.bound):
        _refuse_mighty(server, name)


def _make_roles(server: ServerConnection, roles: Roles, passwords: Mapping[str, str]) -> None:
    # Without INHERIT: what another role may do, a role may only by becoming it.
    switched_to = (roles.staff, roles.bound)
    for name, kind in ((roles.web, "LOGIN"), (roles.worker, "LOGIN"), *((name, "NOLOGIN") for name in switched_to)):
        _until_won(partial(_make, server, name, kind))
    for name in switched_to:
        _until_won(partial(_let_become, server, roles.web, name))
    for name in (roles.web, roles.worker):
        _until_won(partial(_bound, server, name))
    for name, password in passwords.items():
        statement = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(name), sql.Literal(password))
        _until_won(partial(server.execute, statement))


@contextmanager
def _alone(server: ServerConnection) -> Iterator[None]:
    """Among those who make roles from this database; makers in other databases are met with another try."""
    server.execute("SELECT pg_advisory_lock(hashtextextended('recollect: roles', 0))")
    try:
        yield
    finally:
        server.execute("SELECT pg_advisory_unlock(hashtextextended('recollect: roles', 0))")


def existing(server: ServerConnection, roles: Roles) -> set[str]:
    """The roles of these that exist on the server."""
    found = server.execute("SELECT rolname FROM pg_roles WHERE rolname = ANY(%s)", [list(roles.all)])
    return {str(name) for (name,) in found}


def _until_won(step: Callable[[], object]) -> object:
    for _ in range(4):
        try:
            return step()
        except LOST_RACES:
            continue
    return step()


def _make(server: ServerConnection, name: str, kind: str) -> None:
    if not server.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone():
        server.execute(sql.SQL("CREATE ROLE {} NOINHERIT {}").format(sql.Identifier(name), sql.SQL(kind)))


def _bound(server: ServerConnection, name: str) -> None:
    """Limits for each session of the role. Before PostgreSQL 17 a server can bound a statement, not a transaction."""
    knows = server.info.server_version >= TRANSACTION_TIMEOUT_SINCE
    requested = {
        "transaction_timeout" if knows else "statement_timeout": LONGEST_TRANSACTION,
        "idle_in_transaction_session_timeout": LONGEST_IDLE_TRANSACTION,
    }
    row = server.execute(
        "SELECT coalesce((SELECT setconfig FROM pg_db_role_setting "
        "WHERE setdatabase = 0 AND setrole = %s::regrole), '{}')",
        [name],
    ).fetchone()
    present = set(row[0]) if row else set()
    for setting, value in requested.items():
        if not any(each.startswith(f"{setting}=") for each in present):
            # An administrator's own value stays. A role that somebody else made may not be ours to change.
            with suppress(psycopg.errors.InsufficientPrivilege):
                server.execute(
                    sql.SQL("ALTER ROLE {} SET {} = {}").format(
                        sql.Identifier(name), sql.Identifier(setting), sql.Literal(value)
                    )
                )


def _let_become(server: ServerConnection, member: str, role: str) -> None:
    known = server.execute(
        "SELECT 1 FROM pg_auth_members WHERE roleid = %s::regrole AND member = %s::regrole", [role, member]
    )
    if not known.fetchone():
        server.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(role), sql.Identifier(member)))


def _refuse_mighty(server: ServerConnection, name: str) -> None:
    row = server.execute(
        "SELECT rolsuper OR rolbypassrls OR rolcreaterole FROM pg_roles WHERE rolname = %s", [name]
    ).fetchone()
    if row is None or row[0]:
        raise ImproperlyConfigured(
            f"The role {name} may do too much: as a superuser, run "
            f"ALTER ROLE {name} NOSUPERUSER NOBYPASSRLS NOCREATEROLE."
        )
