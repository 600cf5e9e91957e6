"""Connects as another role for a while: as the owner for migrations, as the worker for its work outside a worker."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import environ
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection, connections

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
