"""What a Citus cluster needs at run time: its metadata, and the user in each statement.

Adds the user to a connection's statements, so that a cluster can route each statement to one node.

`acting_as` sets it for everything within (core/isolation/acting.py). A worker acts as no user and sets it with `about`
when it works on one user's rows. It grants no access: the policies do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Field

from core.isolation.acting import OWN_ROLE, is_cluster
from core.isolation.checks import personal_models

# No user has this number. A caller without a user sees no row on any node, so one node is enough to query or lock.
NOBODY = 0


@contextmanager
def about(user_id: int | None) -> Iterator[None]:
    """Within the block, on a cluster, every ORM query on personal tables is restricted to this user's rows."""
    database: Any = connections[DEFAULT_DB_ALIAS]
    before = getattr(database, "about_user", None)
    database.about_user = user_id
    try:
        yield
    finally:
        database.about_user = before


def routed_to(connection: BaseDatabaseWrapper) -> int | None:
    """The user whose rows the connection's statements are about; None if unknown, or without a cluster."""
    acting = getattr(connection, "acting", None)
    user_id: int | None = getattr(connection, "about_user", None)
    if acting is not None and acting.role == OWN_ROLE:
        user_id = int(acting.user_id or NOBODY)
    return user_id if user_id is not None and is_cluster(connection) else None


@cache
def owner_fields() -> dict[str, "Field[Any, Any]"]:
    """For each personal model, by table: the field that names the owner."""
    return {model._meta.db_table: model._meta.get_field("user") for model in personal_models()}  # type: ignore[misc]


_NODES = (
    "SELECT nodename, nodeport, groupid, shouldhaveshards FROM pg_dist_node WHERE isactive AND noderole = 'primary'"
)
# Without tables that are on the coordinator and known to Citus only because they refer to a table on every node.
_TABLES = (
    "SELECT logicalrelid::regclass::text, partmethod FROM pg_dist_partition WHERE partmethod = 'h' OR repmodel = 't'"
)


# For a transaction that changes several tables and their copies on every node. After a parallel change on all shards,
# Citus refuses further changes in the same transaction through a table that refers to them.
ONE_SHARD_AFTER_ANOTHER = "SET citus.multi_shard_modify_mode = 'sequential'"


@dataclass(frozen=True, slots=True)
class Node:
    """`group` 0 is the coordinator."""

    host: str
    port: int
    group: int
    has_shards: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def nodes(connection: BaseDatabaseWrapper) -> list[Node]:
    with connection.cursor() as cursor:
        cursor.execute(_NODES)
        return sorted((Node(*row) for row in cursor.fetchall()), key=lambda node: (node.group, str(node)))


def placed_tables(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """The tables that Citus knows, with their method: "h" is distributed, "n" is a table on every node."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        return dict(cursor.fetchall())
