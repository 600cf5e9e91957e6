"""sqlite-vec twice: by the specification's own query, and by its virtual table with a partition for each person."""

import ctypes
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from evals.benchmarks.search.peers.base import INSTALL, Peer, PeerMissing
from evals.benchmarks.search.stored import Stored
from intake.models import Turn, User
from memory.embedders.base import Vector
from memory.models.corpora import Key

SNIPPET_LENGTH = 200


def connect(path: Path) -> sqlite3.Connection:
    """A database that knows sqlite-vec. Raises `PeerMissing` with what is missing."""
    try:
        import sqlite_vec
    except ImportError as error:
        raise PeerMissing(f"sqlite-vec is not installed: {INSTALL}") from error
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        _load_for_all(sqlite_vec.loadable_path())
        database = sqlite3.connect(path)
    else:
        database = sqlite3.connect(path)
        database.enable_load_extension(True)
        sqlite_vec.load(database)
    try:
        database.execute("SELECT vec_version()")
    except sqlite3.OperationalError as error:
        raise PeerMissing("this Python's SQLite takes no extensions, and sqlite-vec is one.") from error
    return database


def _load_for_all(extension: str) -> None:
    """Many Pythons leave out `load_extension`; SQLite will still start an extension with each connection."""
    try:
        library = ctypes.CDLL("libsqlite3.so.0")
        library.sqlite3_auto_extension(ctypes.CDLL(f"{extension}.so").sqlite3_vec_init)
    except (OSError, AttributeError) as error:
        raise PeerMissing(f"this Python's SQLite takes no extensions, and sqlite-vec is one: {error}") from error


class AsSpecified(Peer):
    """The query of the specification, to the letter: every vector of the person is compared, the best are looked up.

    Its table says nothing about an index; without one by person it would read everybody's rows, so it has one.
    """

    name = "sqlite_vec_spec"

    def __init__(self, folder: Path) -> None:
        self._database = connect(folder / "spec.sqlite")

    def load(self, people: Iterable[Stored]) -> None:
        """See Peer."""
        self._database.executescript(
            """
            CREATE TABLE embeddings (id TEXT PRIMARY KEY, corpus TEXT, source_id TEXT, chunk_index INTEGER,
                                     user_id TEXT, visibility TEXT, embedding BLOB, embedded_at TEXT);
            CREATE TABLE intake_conversation_turns (conversation_id TEXT, turn_number INTEGER, user_message TEXT,
                                                    assistant_message TEXT, PRIMARY KEY (conversation_id, turn_number));
            """
        )
        for person in people:
            self._database.executemany(
                "INSERT INTO embeddings VALUES (?, 'chat', ?, ?, ?, 'AUTHENTICATED', ?, datetime('now'))", _rows(person)
            )
            self._database.executemany("INSERT INTO intake_conversation_turns VALUES (?, ?, ?, ?)", _turns(person.user))
            self._database.commit()
        self._database.executescript(
            "CREATE INDEX idx_embeddings_user ON embeddings (user_id, corpus); ANALYZE; PRAGMA optimize"
        )

    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
        """See Peer."""
        return [(UUID(found["conversationId"]), found["turnNumber"]) for found in self._search(user, vector, limit)]

    def close(self) -> None:
        """See Peer."""
        self._database.close()

    def _search(self, user: User, vector: Vector, limit: int) -> list[dict[str, Any]]:
        rows = self._database.execute(
            """
            SELECT e.source_id AS conversation_id, e.chunk_index AS turn_number,
                   vec_distance_cosine(e.embedding, ?) AS score
              FROM embeddings e
             WHERE e.corpus = 'chat' AND e.user_id = ?
             ORDER BY score ASC
             LIMIT ?
            """,
            [vector.tobytes(), str(user.pk), limit],
        ).fetchall()
        return [
            {"conversationId": key, "turnNumber": number, "snippet": self._snippet(key, number), "score": score}
            for key, number, score in rows
        ]

    def _snippet(self, conversation_id: str, turn_number: int) -> str:
        turn = self._database.execute(
            """
            SELECT user_message, assistant_message
              FROM intake_conversation_turns
             WHERE conversation_id = ? AND turn_number = ?
            """,
            [conversation_id, turn_number],
        ).fetchone()
        return str(turn[0])[:SNIPPET_LENGTH] if turn else ""


class Partitioned(Peer):
    """`vec0`, sqlite-vec's own table: a person's vectors lie together, and the nearest are all that it is asked for."""

    name = "sqlite_vec_partition"

    def __init__(self, folder: Path) -> None:
        self._database = connect(folder / "partition.sqlite")

    def load(self, people: Iterable[Stored]) -> None:
        """See Peer."""
        for person in people:
            # The first person's vectors tell how wide the table has to be.
            self._database.execute(
                f"""
                CREATE VIRTUAL TABLE IF NOT EXISTS parts USING vec0(
                    user_id INTEGER PARTITION KEY, embedding FLOAT[{person.vectors.shape[1]}] distance_metric=cosine,
                    +source_id TEXT, +chunk_index INTEGER)
                """
            )
            self._database.executemany(
                "INSERT INTO parts (user_id, embedding, source_id, chunk_index) VALUES (?, ?, ?, ?)",
                (
                    (person.user.pk, vector.tobytes(), str(key), number)
                    for (key, number), vector in zip(person.keys, person.vectors, strict=True)
                ),
            )
            self._database.commit()

    def search(self, user: User, vector: Vector, *, limit: int) -> list[Key]:
        """See Peer."""
        rows = self._database.execute(
            """
            SELECT source_id, chunk_index
              FROM parts
             WHERE embedding MATCH ? AND k = ? AND user_id = ?
             ORDER BY distance
            """,
            [vector.tobytes(), limit, user.pk],
        )
        return [(UUID(key), number) for key, number in rows]

    def close(self) -> None:
        """See Peer."""
        self._database.close()


def _rows(person: Stored) -> Iterator[tuple[str, str, int, str, bytes]]:
    """The specification's id, with the part behind it: it knows one vector for each turn."""
    for part, ((key, number), vector) in enumerate(zip(person.keys, person.vectors, strict=True)):
        yield f"chat-{key}-{number}-{part}", str(key), number, str(person.user.pk), vector.tobytes()


def _turns(user: User) -> Iterator[tuple[str, int, str, str]]:
    turns = Turn.objects.for_user(user).values_list(
        "conversation_id", "turn_number", "user_message", "assistant_message"
    )
    for key, number, message, answer in turns.iterator(chunk_size=1000):
        yield str(key), number, message, answer
