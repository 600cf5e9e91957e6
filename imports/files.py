"""The files of an export, whether a folder, a zip, a zip in a zip or a single file: names as data, never as paths.

A reader asks for names and opens streams; what is too large, too deep or unsafe never reaches it.
"""

from collections.abc import Iterable
from typing import IO, Protocol

from imports.items import Skipped


class Files(Protocol):
    """The files beneath one root. A name is relative, with `/`; a single file has its own name."""

    def names(self) -> list[str]:
        """All readable names, in the order of the source for a zip, sorted for a folder."""

    def size(self, name: str) -> int:
        """Bytes, unpacked."""

    def open(self, name: str) -> IO[bytes]:
        """A stream of the bytes, counted against the limits while it is read: raises `UnreadableExport` beyond them."""

    def refused(self) -> Iterable[Skipped]:
        """Entries that are not read, each with its reason: unsafe names, symbolic links."""
