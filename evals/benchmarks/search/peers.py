"""Other searches to compare with: stores that could hold the same vectors and find the nearest among them.

Each has the very vectors that the database holds, and is asked the same questions. numpy is the first: one person's
vectors in memory and nothing around them, the floor and what others are checked by.
"""

import ctypes
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from core.isolation.acting import acting_as
from intake.models import Turn, User
from memory.backends.embedders import Matrix, Vector, get_embedder, normalised
from memory.models import Corpus
from memory.models.documents import Key

INSTALL = ".venv/bin/uv pip install -r requirements/peers.txt"
SNIPPET_LENGTH = 200

_STORED = """
SELECT source_id, chunk_index, is_further, halfvec_send(vector)
  FROM embeddings
 WHERE user_id = %s AND corpus = %s AND vector IS NOT NULL
   AND model_id = (SELECT id FROM embedding_models WHERE name = %s)
 ORDER BY source_id, chunk_index, part
"""
# `halfvec_send` writes how many numbers there are, and a reserved one, in two bytes each, and then the numbers.
SENT_BEFORE = 2

_SPECIFIED_TABLES = """
CREATE TABLE embeddings (id TEXT PRIMARY KEY, corpus TEXT, source_id TEXT, chunk_index INTEGER,
                         user_id TEXT, visibility TEXT, embedding BLOB, embedded_at TEXT);
CREATE TABLE intake_conversation_turns (conversation_id TEXT, turn_number INTEGER, user_message TEXT,
                                        assistant_message TEXT, PRIMARY KEY (conversation_id, turn_number));
"""
_SPECIFIED_QUERY = """
SELECT e.source_id AS conversation_id, e.chunk_index AS turn_number,
       vec_distance_cosine(e.embedding, ?) AS score
  FROM embeddings e
 WHERE e.corpus = 'chat' AND e.user_id = ?
 ORDER BY score ASC
 LIMIT ?
"""
_SPECIFIED_TURN = """
SELECT user_message, assistant_message
  FROM intake_conversation_turns
 WHERE conversation_id = ? AND turn_number = ?
"""
_PARTITIONED_TABLE = """
CREATE VIRTUAL TABLE IF NOT EXISTS parts USING vec0(
    user_id INTEGER PARTITION KEY, embedding FLOAT[{dimensions}] distance_metric=cosine,
    +source_id TEXT, +chunk_index INTEGER)
"""
_PARTITIONED_QUERY = """
SELECT source_id, chunk_index
  FROM parts
 WHERE embedding MATCH ? AND k = ? AND user_id = ?
 ORDER BY distance
"""


@dataclass(frozen=True, slots=True)
class Stored:
    """A person's parts: row i of `vectors` is a part of the turn `keys[i]`; the vectors are float32, as stored.

    `is_further`: which of the parts are further on in a long text.
    """

    user: User
    keys: list[Key]
    vectors: Matrix
    is_further: NDArray[np.bool_]

    @property
    def rows(self) -> Iterator[tuple[str, int, Vector]]:
        """Of each part: its conversation, the number of its turn, its vector."""
        return ((str(source), number, vector) for (source, number), vector in zip(self.keys, self.vectors, strict=True))


def read(user: User) -> Stored:
    """Every part of one person's turns that has a vector."""
    with acting_as(user), connection.cursor() as cursor:
        cursor.execute(_STORED, [user.pk, Corpus.CHAT.value, get_embedder().name])
        rows = cursor.fetchall()
    sent = np.frombuffer(b"".join(bytes(row[3]) for row in rows), ">f2").reshape(len(rows), -1)
    return Stored(
        user,
        keys=[(source, number) for source, number, *_ in rows],
        vectors=sent[:, SENT_BEFORE:].astype(np.float32),
        is_further=np.array([row[2] for row in rows], bool),
    )


class Peer(ABC):
    """Made with an empty folder of its own. Making one raises `ImportError` where it cannot run."""

    name: str

    @abstractmethod
    def __init__(self, folder: Path) -> None: ...

    @abstractmethod
    def load(self, people: Iterable[Stored]) -> None:
        """Take in everybody's vectors, with what the peer has to find one person's quickly."""

    @abstractmethod
    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
        """The turns of the person's `limit` parts that are nearest by cosine distance, the nearest first."""

    def close(self) -> None:  # noqa: B027 (not everybody holds something)
        """Let go of what is open, so that the folder can be removed."""


class Exact(Peer):
    """See Peer. `further`: passages further on in a long text count as so much farther."""

    name = "numpy"

    def __init__(self, folder: Path, *, further: float = 0.0) -> None:
        self._people: dict[int, Stored] = {}
        self._further = further

    def load(self, people: Iterable[Stored]) -> None:
        for person in people:
            self._people[person.user.pk] = replace(person, vectors=normalised(person.vectors))

    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
        person = self._people[user.pk]
        nearness = person.vectors @ vector
        if self._further:
            nearness = nearness - self._further * person.is_further
        limit = min(limit, len(nearness))
        nearest = np.argpartition(-nearness, limit - 1)[:limit]
        return [person.keys[row] for row in nearest[np.argsort(-nearness[nearest], kind="stable")]]


class SqliteVec(Peer):
    """A database of SQLite's that knows sqlite-vec."""

    def __init__(self, folder: Path) -> None:
        try:
            import sqlite_vec
        except ImportError as error:
            raise ImportError(f"sqlite-vec is not installed: {INSTALL}") from error
        _load_for_all(sqlite_vec.loadable_path())
        self._database = sqlite3.connect(folder / f"{self.name}.sqlite")

    def close(self) -> None:
        self._database.close()


def _load_for_all(extension: str) -> None:
    """Have SQLite start the extension with each connection: many Pythons leave out `load_extension`."""
    try:
        library = ctypes.CDLL("libsqlite3.so.0")
        library.sqlite3_auto_extension(ctypes.CDLL(f"{extension}.so").sqlite3_vec_init)
        with sqlite3.connect(":memory:") as database:
            database.execute("SELECT vec_version()")
    except (OSError, AttributeError, sqlite3.OperationalError) as error:
        raise ImportError(f"this Python's SQLite takes no extensions, and sqlite-vec is one: {error}") from error


class AsSpecified(SqliteVec):
    """The query of the specification, to the letter: every vector of the person is compared, the best are looked up.

    Its table says nothing about an index; without one by person it would read everybody's rows, so it has one.
    """

    name = "sqlite_vec_spec"

    def load(self, people: Iterable[Stored]) -> None:
        self._database.executescript(_SPECIFIED_TABLES)
        for person in people:
            # The specification's id, with the part behind it: it knows one vector for each turn.
            rows = (
                (f"chat-{source}-{number}-{part}", source, number, str(person.user.pk), vector.tobytes())
                for part, (source, number, vector) in enumerate(person.rows)
            )
            self._database.executemany(
                "INSERT INTO embeddings VALUES (?, 'chat', ?, ?, ?, 'AUTHENTICATED', ?, datetime('now'))", rows
            )
            self._database.executemany("INSERT INTO intake_conversation_turns VALUES (?, ?, ?, ?)", _turns(person.user))
            self._database.commit()
        self._database.executescript(
            "CREATE INDEX idx_embeddings_user ON embeddings (user_id, corpus); ANALYZE; PRAGMA optimize"
        )

    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
        return [(UUID(found["conversationId"]), found["turnNumber"]) for found in self._search(user, vector, limit)]

    def _search(self, user: User, vector: Vector, limit: int) -> list[dict[str, Any]]:
        rows = self._database.execute(_SPECIFIED_QUERY, [vector.tobytes(), str(user.pk), limit]).fetchall()
        return [
            {"conversationId": key, "turnNumber": number, "snippet": self._snippet(key, number), "score": score}
            for key, number, score in rows
        ]

    def _snippet(self, conversation_id: str, turn_number: int) -> str:
        turn = self._database.execute(_SPECIFIED_TURN, [conversation_id, turn_number]).fetchone()
        return str(turn[0])[:SNIPPET_LENGTH] if turn else ""


class Partitioned(SqliteVec):
    """`vec0`, sqlite-vec's own table: a person's vectors lie together, and the nearest are all that it is asked for."""

    name = "sqlite_vec_partition"

    def load(self, people: Iterable[Stored]) -> None:
        for person in people:
            # The first person's vectors tell how wide the table has to be.
            self._database.execute(_PARTITIONED_TABLE.format(dimensions=person.vectors.shape[1]))
            self._database.executemany(
                "INSERT INTO parts (user_id, embedding, source_id, chunk_index) VALUES (?, ?, ?, ?)",
                ((person.user.pk, vector.tobytes(), source, number) for source, number, vector in person.rows),
            )
            self._database.commit()

    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
        rows = self._database.execute(_PARTITIONED_QUERY, [vector.tobytes(), limit, user.pk])
        return [(UUID(key), number) for key, number in rows]


def _turns(user: User) -> Iterator[tuple[str, int, str, str]]:
    turns = Turn.objects.for_user(user).values_list(
        "conversation_id", "turn_number", "user_message", "assistant_message"
    )
    for key, number, message, answer in turns.iterator(chunk_size=1000):
        yield str(key), number, message, answer


class Filtered(Peer):
    """LanceDB as it comes: one table, whose column of persons is read before the vectors are compared, each with each.

    Without an index over the vectors, which would make its answers approximate.
    """

    name = "lancedb"

    def __init__(self, folder: Path) -> None:
        try:
            import lancedb
        except ImportError as error:
            raise ImportError(f"LanceDB is not installed: {INSTALL}") from error
        self._database = lancedb.connect(folder / "lance")
        self._table: Any = None

    def load(self, people: Iterable[Stored]) -> None:
        # Not as one stream: LanceDB would read it in a thread of its own, with a database connection nobody closes.
        for rows in map(_arrow_table, people):
            if self._table is None:
                self._table = self._database.create_table("parts", data=rows)
            else:
                self._table.add(rows)
        self._table.optimize()

    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
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
    """LanceDB with an index over the persons."""

    name = "lancedb_bitmap"

    def load(self, people: Iterable[Stored]) -> None:
        import lancedb.index

        super().load(people)
        self._table.create_index("user_id", config=lancedb.index.Bitmap())


def _arrow_table(person: Stored) -> Any:
    import pyarrow as pa

    columns = {
        "user_id": pa.array([person.user.pk] * len(person.keys), pa.int64()),
        "source_id": pa.array([str(key) for key, _ in person.keys]),
        "chunk_index": pa.array([number for _, number in person.keys], pa.int32()),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(person.vectors.ravel()), person.vectors.shape[1]),
    }
    return pa.table(columns)


PEERS: tuple[type[Peer], ...] = (Exact, AsSpecified, Partitioned, Filtered, Indexed)
