"""What the database knows of its cluster: whether Citus is there, which nodes it has, which tables are distributed."""

from dataclasses import dataclass
from threading import Lock
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

_HAS_CITUS = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')"
_NODES = (
    "SELECT nodename, nodeport, groupid, shouldhaveshards FROM pg_dist_node WHERE isactive AND noderole = 'primary'"
)
_TABLES = "SELECT logicalrelid::regclass::text, partmethod FROM pg_dist_partition"

# By the address of a database: Citus is installed once, before the schema.
_known: dict[tuple[Any, ...], bool] = {}
_lock = Lock()


@dataclass(frozen=True, slots=True)
class Node:
    """`group` 0 is the coordinator."""

    host: str
    port: int
    group: int
    has_shards: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def is_cluster(connection: BaseDatabaseWrapper) -> bool:
    """Whether the connection's database is part of a Citus cluster; asked once for each database and process."""
    address = tuple(connection.settings_dict[name] for name in ("HOST", "PORT", "NAME"))
    with _lock:
        known = _known.get(address)
    if known is None:
        with connection.cursor() as cursor:
            cursor.execute(_HAS_CITUS)
            known = bool(cursor.fetchone()[0])
        with _lock:
            _known[address] = known
    return known


def nodes(connection: BaseDatabaseWrapper) -> list[Node]:
    with connection.cursor() as cursor:
        cursor.execute(_NODES)
        return sorted((Node(*row) for row in cursor.fetchall()), key=lambda node: (node.group, str(node)))


def placed_tables(connection: BaseDatabaseWrapper) -> dict[str, str]:
    """The tables that Citus knows, each with its method: "h" is distributed, "n" a table on every node."""
    with connection.cursor() as cursor:
        cursor.execute(_TABLES)
        return dict(cursor.fetchall())
