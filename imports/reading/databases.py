"""Opens an SQLite database of an export: a copy in a temporary folder, with its write-ahead log, only for reading."""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from imports.reading.files import Files
from imports.reading.json_lines import LONGEST_LINE
from imports.reading.limits import Budget

_MAGIC = b"SQLite format 3\0"


def has_table(files: Files, name: str) -> bool:
    """Whether it is a database whose first pages name the table of a session's events."""
    with files.look(name) as stream:
        beginning = stream.read(256 * 1024)
    return beginning.startswith(_MAGIC) and b"transcript_events" in beginning


@contextmanager
def opened_database(files: Files, name: str) -> Iterator[sqlite3.Connection]:
    """Raises `sqlite3.Error` for a damaged one. The schema is a stranger's: no function of it may do anything."""
    with tempfile.TemporaryDirectory(dir=files.limits.temporary) as folder:
        names = set(files.names())
        for ending in ("", "-wal"):
            if name + ending in names:
                Budget(files.limits, packed=0).check_free()
                with files.open(name + ending) as stream, Path(folder, f"copy{ending}").open("wb") as copy:
                    shutil.copyfileobj(stream, copy)
        address = f"{Path(folder, 'copy').as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, check_same_thread=False)) as connection:
            connection.text_factory = lambda data: data.decode(errors="replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_LINE)
            connection.execute("PRAGMA trusted_schema = OFF")
            yield connection


def tables(connection: sqlite3.Connection) -> set[str]:
    """The real ones: a view could compute for ever."""
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
    return {name for name, sql in rows if not str(sql).upper().startswith("CREATE VIRTUAL")}


def all_of(connection: sqlite3.Connection, query: str) -> Iterator[dict[str, object]]:
    """The rows by the names of their columns, of which another version may have others."""
    rows = connection.execute(query)
    names = [column[0] for column in rows.description]
    return (dict(zip(names, row, strict=True)) for row in rows)
