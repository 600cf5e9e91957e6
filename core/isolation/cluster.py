"""What the database knows of its cluster: which nodes it has, and which tables are distributed."""

from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper

_NODES = (
    "SELECT nodename, nodeport, groupid, shouldhaveshards FROM pg_dist_node WHERE isactive AND noderole = 'primary'"
)
# Not those that lie on the coordinator and are known to Citus because they refer to a table that is on every node.
_TABLES = (
    "SELECT logicalrelid::regclass::text, partmethod FROM pg_dist_partition WHERE partmethod = 'h' OR repmodel = 't'"
)


# For a transaction that changes several tables and their copies on every node: what has been changed on all shards at
# once, Citus changes no further in the same transaction through a table that refers to it.
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
    """The tables that Citus knows, each with its method: "h" is distributed, "n" a table on every node."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        return dict(cursor.fetchall())
