"""Connects as another role for a while: as the owner for migrations, as the worker for its work outside a worker."""

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


def parameters(url: str, *, name: str) -> dict[str, Any]:
    """Settings of a connection outside the pool."""
    given = environ.Env.db_url_config(url)
    login = {key: given[key] for key in OF_THE_ADDRESS}
    options = {**given.get("OPTIONS", {}), "connect_timeout": 5}
    return {**connections.settings[DEFAULT_DB_ALIAS], **login, "NAME": name, "OPTIONS": options}
