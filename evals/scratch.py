"""A database to try things in: made beside the configured one, migrated, and dropped when the work is done.

1. A lock held in the configured database's server says that the scratch database's maker is alive; makers that were
   killed outright leave a database without one, and the next maker drops it.
2. The scratch database stands in for the configured one by a connection of its own, outside the pool: the pool, the
   configured database, and any transaction that is open in it are left as they are.
3. Whatever ends the work, short of SIGKILL, the database is dropped.
4. With `CITUS_URLS` (testing/cluster.py), whose coordinator must be the configured server, it is made on
   that cluster, and its tables are distributed. No copy can be made of it there.
5. The owner makes, migrates and drops it; within it everything runs as in production, as the web role or as a worker.
"""

import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from unittest import mock
from urllib.parse import quote, urlencode, urlsplit

import psycopg
from django.conf import settings
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError, call_command
from django.db import DEFAULT_DB_ALIAS, connection, connections
from psycopg import sql

from core.isolation.acting import is_cluster
from core.isolation.checks import personal_models
from core.isolation.connecting import connected_as_owner, connected_as_worker, parameters
from core.isolation.roles import ServerConnection
from memory.index import writer
from testing.cluster import cluster_urls, drop_database, make_database

PREFIX = "recollect_scratch_"


@contextmanager
def scratch_database() -> Iterator[str]:
    """Within the block everything that asks Django for the database gets an empty, migrated one; gives its name.

    One at a time in a process, any number of processes. Workers are not woken: the running ones look elsewhere.
    """
    without_waking = mock.patch.object(writer, "wake_worker", lambda: None)
    with ending_by_exception(), _made() as name, _standing_in(name), without_waking:
        call_command("migrate", verbosity=0, interactive=False)
        if is_cluster(connection):
            call_command("distribute", verbosity=0)
        yield name


class Copy:
    """A scratch database as it was at a moment, while the one that it was copied from goes on."""

    def __init__(self, name: str) -> None:
        settings_of_it = {**connections.settings[DEFAULT_DB_ALIAS], "NAME": name}
        self._connection = type(connections[DEFAULT_DB_ALIAS])(settings_of_it, DEFAULT_DB_ALIAS)
        self.close = self._connection.close

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Within the block everything that asks for the scratch database, in this thread, gets the copy."""
        kept = connections[DEFAULT_DB_ALIAS]
        connections[DEFAULT_DB_ALIAS] = self._connection
        try:
            yield
        finally:
            connections[DEFAULT_DB_ALIAS] = kept


@contextmanager
def copied(name: str) -> Iterator[Copy]:
    """A copy of the scratch database `name`, in which nobody else may be at work meanwhile; gone after the block."""
    # PostgreSQL copies no database that somebody is connected to.
    connection.close()
    with _made(template=name) as copy_name, closing(Copy(copy_name)) as copy:
        yield copy


@contextmanager
def as_worker() -> Iterator[None]:
    """Within the block everything that asks for the scratch database gets it as a worker does."""
    if not str(connection.settings_dict["NAME"]).startswith(PREFIX):
        yield
        return
    with connected_as_worker():
        yield


@contextmanager
def unbound() -> Iterator[None]:
    """Within the block it is the owner's, whom no policy binds meanwhile: for rows that no service writes."""
    if not str(connection.settings_dict["NAME"]).startswith(PREFIX):
        yield
        return
    tables = [connection.ops.quote_name(model._meta.db_table) for model in personal_models()]
    with connected_as_owner(), connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY")
        yield
        for table in tables:
            cursor.execute(f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY")


def bare_connection() -> ServerConnection:
    """A connection of psycopg's own, as the web role, to the scratch database while it stands in."""
    return _server(connections.settings[DEFAULT_DB_ALIAS])


def database_url(name: str, *, login: str = "") -> str:
    """The `DATABASE_URL` with which another process can use this database on the configured server.

    `login`: another address there, whose role it is to log in as.
    """
    configured = parameters(login, name=name) if login else connection.settings_dict
    options = {key: value for key, value in configured["OPTIONS"].items() if key != "pool"}
    # As options rather than in the address, where a socket's folder has no place.
    options |= {key.lower(): configured[key] for key in ("HOST", "PORT") if configured[key]}
    user, password = (quote(configured[key], safe="") for key in ("USER", "PASSWORD"))
    return f"postgres://{user}:{password}@/{name}?{urlencode(options)}"


@contextmanager
def _made(*, template: str | None = None) -> Iterator[str]:
    with _server() as server:
        prefix = _prefix(server)
        abandoned = server.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [prefix])
        for (name,) in abandoned.fetchall():
            if _lock(server, name):
                _drop(server, name)
        name = prefix + secrets.token_hex(6)
        _lock(server, name)
        _create(server, name, template)
        try:
            yield name
        finally:
            _drop(server, name)


def _server(configured: dict[str, Any] | None = None) -> ServerConnection:
    """A connection to the configured database for statements about databases; it reads and writes no row there.

    The owner's, who alone may make one, unless other settings are given.
    """
    given = configured or _as(settings.DATABASE_OWNER_URL)
    requested = {
        **type(connections[DEFAULT_DB_ALIAS])(given, DEFAULT_DB_ALIAS).get_connection_params(),
        "autocommit": True,
    }
    requested.pop("cursor_factory", None)
    requested.pop("assume_role", None)
    return psycopg.connect(**requested)


def _as(login: str) -> dict[str, Any]:
    configured = connections.settings[DEFAULT_DB_ALIAS]
    return parameters(login, name=str(configured["NAME"])) if login else configured


def _prefix(server: ServerConnection) -> str:
    """Another for each configured database, since the locks below are seen within one database only."""
    row = server.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
    assert row is not None  # noqa: S101
    return f"{PREFIX}{row[0]}_"


def _lock(server: ServerConnection, name: str) -> bool:
    """Whether this connection now holds the database's lock; it does so until it closes or dies."""
    row = server.execute("SELECT pg_try_advisory_lock(hashtextextended(%s, 0))", [name]).fetchone()
    return row is not None and bool(row[0])


def _create(server: ServerConnection, name: str, template: str | None) -> None:
    if cluster_urls():
        make_database(cluster_urls(), str(urlsplit(settings.DATABASE_OWNER_URL).password), name=name)
        return
    statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if template is not None:
        # By files: a large one would otherwise go through the log, page by page.
        statement += sql.SQL(" TEMPLATE {} STRATEGY file_copy").format(sql.Identifier(template))
    try:
        server.execute(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        role = server.info.user
        raise CommandError(
            f"The role {role} may not create databases, and this needs one to try things in: ALTER ROLE {role} CREATEDB"
        ) from error


def _drop(server: ServerConnection, name: str) -> None:
    if cluster_urls():
        drop_database(cluster_urls(), name)
        return
    # Threads and child processes may still be connected, and each role may end its own sessions alone. Not by WITH
    # (FORCE): that gives up when autovacuum is at work there, which belongs to a superuser, while a plain DROP sends
    # autovacuum away by itself.
    _end_sessions(server, name)
    for login in ("", settings.DATABASE_WORKER_URL):
        with _server(_as(login)) as other:
            _end_sessions(other, name)
    server.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def _end_sessions(server: ServerConnection, name: str) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s AND usename = current_user",
        [name],
    )


@contextmanager
def _standing_in(name: str) -> Iterator[None]:
    configured, kept = connections.settings[DEFAULT_DB_ALIAS], connections[DEFAULT_DB_ALIAS]
    options = {key: value for key, value in configured["OPTIONS"].items() if key != "pool"}
    # In the settings as well, so that a thread started meanwhile finds the same database.
    connections.settings[DEFAULT_DB_ALIAS] = {**configured, "NAME": name, "OPTIONS": options}
    connections[DEFAULT_DB_ALIAS] = connections.create_connection(DEFAULT_DB_ALIAS)
    ContentType.objects.clear_cache()
    try:
        yield
    finally:
        connection.close()
        connections.settings[DEFAULT_DB_ALIAS] = configured
        connections[DEFAULT_DB_ALIAS] = kept
        ContentType.objects.clear_cache()


@contextmanager
def ending_by_exception() -> Iterator[None]:
    """Have a termination signal unwind the program, as Ctrl-C does, instead of ending it on the spot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, kept)
