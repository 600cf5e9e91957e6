"""Copies the migrated test database for tests that need a second one: copying takes a tenth of migrating."""

import psycopg
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql


def template_of(name: str) -> str:
    """The name of the copy, which is never written to."""
    return f"{name}_migrated"


def make_template(owners: BaseDatabaseWrapper) -> None:
    """Copy the database of this connection, the only one to it, over the copy of an earlier run."""
    name = str(owners.settings_dict["NAME"])
    with _server(owners) as server:
        drop_template(owners)
        owners.close()
        names = (sql.Identifier(each) for each in (template_of(name), name))
        server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(*names))


def drop_template(owners: BaseDatabaseWrapper) -> None:
    name = template_of(str(owners.settings_dict["NAME"]))
    with _server(owners) as server:
        server.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)))


def _server(owners: BaseDatabaseWrapper) -> "psycopg.Connection[tuple[object, ...]]":
    """A connection to the server, outside the copied database."""
    requested = {**owners.get_connection_params(), "dbname": "postgres", "autocommit": True}
    for name in ("cursor_factory", "assume_role"):
        requested.pop(name, None)
    return psycopg.connect(**requested)
