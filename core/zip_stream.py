"""Streams a zip while creating it: no file on disk, no seeking, and only a small part in memory."""

import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

# The number of bytes sent at once.
PIECE = 64 * 1024


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
    outbox: Any = _Outbox()
    with zipfile.ZipFile(outbox, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            if file.name in archive.NameToInfo:
                continue
            # No zip can name a time before these years or after them.
            at = min(max(file.at.astimezone(UTC).timetuple()[:6], (1980, 1, 1, 0, 0, 0)), (2107, 12, 31, 23, 59, 58))
            entry = zipfile.ZipInfo(file.name, at)
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=file.may_be_large) as writer:
                for piece in file.pieces:
                    writer.write(piece)
                    if len(outbox) >= PIECE:
                        yield bytes(outbox)
                        outbox.clear()
    yield bytes(outbox)


class _Outbox(bytearray):
    """The output of `zipfile`, which cannot seek in it."""

    def write(self, data: bytes) -> int:
        self.extend(data)
        return len(data)

    def flush(self) -> None:
        """There is no buffer below this one."""
