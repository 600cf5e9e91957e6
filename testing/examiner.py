"""The examiner of tests: a role that sees every row, so that a test can create and inspect data.

The examiner exists only on test servers. The application never runs as the examiner: each endpoint uses `acting_as`,
which first resets the role, and code without it runs as the web role and sees nothing.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection, connections
from psycopg import sql

EXAMINER = "recollect_examiner"


def make_examiner(server: psycopg.Connection[Any], *, owner: str, web: str, worker: str) -> None:
    """Run as a superuser. Only on this server the web role may become the examiner and, for a worker's work, the
    worker.
    """
    roles = {"examiner": EXAMINER, "owner": owner, "web": web, "worker": worker}
    names = {name: sql.Identifier(role) for name, role in roles.items()}
    if not server.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [EXAMINER]).fetchone():
        server.execute(sql.SQL("CREATE ROLE {examiner} NOLOGIN BYPASSRLS").format(**names))
    for statement in ("GRANT {owner} TO {examiner}", "GRANT {examiner}, {worker} TO {web}"):
        server.execute(sql.SQL(statement).format(**names))


def let_the_examiner_look() -> None:
    """From now on this thread's connection uses the examiner; every other thread's uses the web role."""
    kept = connections[DEFAULT_DB_ALIAS]
    options = {key: value for key, value in kept.settings_dict["OPTIONS"].items() if key != "pool"}
    seeing = {**kept.settings_dict, "OPTIONS": {**options, "assume_role": EXAMINER}}
    connections[DEFAULT_DB_ALIAS] = type(kept)(seeing, DEFAULT_DB_ALIAS)
    kept.close()


@contextmanager
def as_the_application() -> Iterator[None]:
    """Use the web role without a user: the state at the start of every request."""
    with _with_identity("none"):
        yield


@contextmanager
def as_a_worker() -> Iterator[None]:
    """Use the worker role, as a worker's process does."""
    with _with_identity(settings.DATABASE_ROLES.worker):
        yield


def take_policies_away() -> None:
    """Remove all policies; the end of the test's transaction restores them."""
    from core.isolation.acting import is_cluster
    from core.isolation.checks import personal_models  # the servers' keeper imports this module without Django

    if is_cluster(connection):
        import pytest

        pytest.skip("On a cluster tests commit, and nobody would take it back.")
    with connection.cursor() as cursor:
        # Deferred constraints block ALTER TABLE.
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for model in personal_models():
            cursor.execute(f"ALTER TABLE {model._meta.db_table} DISABLE ROW LEVEL SECURITY")


@contextmanager
def _with_identity(role: str) -> Iterator[None]:
    before = _become(role)
    try:
        yield
    finally:
        # A rolled-back transaction has restored the role already; a broken one will.
        if not connection.needs_rollback:
            _become(before)


def _become(role: str) -> str:
    """Returns the role before. One statement, because each request of a test's client runs within this block."""
    with connection.cursor() as cursor:
        # PostgreSQL evaluates them in this order.
        cursor.execute("SELECT current_setting('role'), set_config('role', %s, %s)", [role, connection.in_atomic_block])
        return str(cursor.fetchone()[0])
