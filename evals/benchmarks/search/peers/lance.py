"""LanceDB: one table for everybody, filtered by the person before the vectors are compared, each with each.

Without an index over the vectors, which would make its answers approximate.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from evals.benchmarks.search.peers.base import INSTALL, Peer, PeerMissing
from evals.benchmarks.search.stored import Stored
from intake.models import User
from memory.embedders.base import Vector
from memory.models.corpora import Key


class Filtered(Peer):
    """As it comes: the filter reads the column of persons."""

    name = "lancedb"

    def __init__(self, folder: Path) -> None:
        try:
            import lancedb
        except ImportError as error:
            raise PeerMissing(f"LanceDB is not installed: {INSTALL}") from error
        self._database = lancedb.connect(folder / "lance")
        self._table: Any = None

    def load(self, people: Iterable[Stored]) -> None:
        """See Peer."""
        # Not as one stream: LanceDB would read it in a thread of its own, with a database connection nobody closes.
        for rows in map(_rows, people):
            if self._table is None:
                self._table = self._database.create_table("parts", data=rows)
            else:
                self._table.add(rows)
        self._table.optimize()

    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
        """See Peer."""
        found = (
            self._table.search(vector)
            .distance_type("cosine")
            .where(f"user_id = {user.pk}", prefilter=True)
            .select(["source_id", "chunk_index", "_distance"])
            .limit(limit)
            .to_arrow()
        )
        rows = zip(found["source_id"].to_pylist(), found["chunk_index"].to_pylist(), strict=True)
        return [(UUID(key), number) for key, number in rows]


class Indexed(Filtered):
    """With an index over the persons."""

    name = "lancedb_bitmap"

    def load(self, people: Iterable[Stored]) -> None:
        """See Peer."""
        import lancedb.index

        super().load(people)
        self._table.create_index("user_id", config=lancedb.index.Bitmap())


def _rows(person: Stored) -> Any:
    import pyarrow as pa

    vectors = pa.FixedSizeListArray.from_arrays(pa.array(person.vectors.ravel()), person.vectors.shape[1])
    columns = {
        "user_id": pa.array([person.user.pk] * len(person.keys), pa.int64()),
        "source_id": pa.array([str(key) for key, _ in person.keys]),
        "chunk_index": pa.array([number for _, number in person.keys], pa.int32()),
        "vector": vectors,
    }
    return pa.table(columns)
