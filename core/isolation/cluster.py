"""Reads the cluster's metadata: its nodes, and the distributed tables."""

from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper

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
