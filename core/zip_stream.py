"""Streams a zip while creating it: no file on disk, no seeking, and only a small part in memory."""

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

# The number of bytes sent at once.
PIECE = 64 * 1024
_FIRST_YEAR, _LAST_YEAR = 1980, 2107  # that a zip can name


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    """One file of a zip. Its bytes are requested once, when it is written."""

    name: str
    at: datetime
    pieces: Iterable[bytes]
    # Above 2 GB a file needs a longer form of its entry, which some programs do not support.
    may_be_large: bool = False


def zipped(files: Iterable[ArchiveFile]) -> Iterator[bytes]:
    """The zip of these files, in pieces of about `PIECE` bytes. A repeated name is left out."""
    outbox = _Outbox()
    unseekable: Any = outbox
    with zipfile.ZipFile(unseekable, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            if file.name in archive.NameToInfo:
                continue
            with archive.open(_entry(file), "w", force_zip64=file.may_be_large) as entry:
                for piece in file.pieces:
                    entry.write(piece)
                    if outbox.size >= PIECE:
                        yield outbox.take()
    yield outbox.take()


def _entry(file: ArchiveFile) -> zipfile.ZipInfo:
    at = file.at.astimezone(UTC)
    if not _FIRST_YEAR <= at.year <= _LAST_YEAR:
        at = datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC)
    entry = zipfile.ZipInfo(file.name, at.timetuple()[:6])
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


class _Outbox:
    """The output of `zipfile`: it cannot seek, and keeps the written bytes until they are taken."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    @property
    def size(self) -> int:
        return len(self._waiting)

    def write(self, data: bytes) -> int:
        self._waiting += data
        return len(data)

    def flush(self) -> None:
        """There is no buffer below this one."""

    def take(self) -> bytes:
        taken = bytes(self._waiting)
        self._waiting.clear()
        return taken
