"""Logging in as somebody else for a while: the owner for migrations, the worker for its work outside a worker."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import environ
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection, connections

# The login and the place in an address; the database is the current one, also a test's or a scratch database.
OF_THE_ADDRESS = ("USER", "PASSWORD", "HOST", "PORT")


@contextmanager
def connected_as(url: str) -> Iterator[None]:
    """Within the block this thread has a connection of its own, made with `url`, to the database that it has now.

    The connection that it has otherwise, and any transaction that is open there, are left as they are.
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
    """As DATABASE_OWNER_URL says; where it says nothing, DATABASE_URL is taken to be the owner's for once."""
    if not settings.DATABASE_OWNER_URL:
        yield
        return
    with connected_as(settings.DATABASE_OWNER_URL):
        yield


@contextmanager
def connected_as_worker() -> Iterator[None]:
    """As DATABASE_WORKER_URL says; a process that has no such address is a worker's own."""
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
