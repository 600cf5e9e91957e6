"""Opens the files of an export: a folder, a zip, a zip in a zip or a single file. Names are data, never paths.

A reader asks for names and opens streams; it never gets files that are too large, too deeply nested or unsafe.
"""

import codecs
import io
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Protocol

from imports.reading.items import Skipped, UnreadableExport
from imports.reading.limits import Budget, Limits
from imports.reading.zips import ZipEntries, is_zip

_CHUNK = 65536
_BEGINNING = 4


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


class SingleFile:
    """One file that is no zip, under its own name, or that of the uploaded file."""

    def __init__(self, path: Path, limits: Limits, name: str = "") -> None:
        self._path = path
        self._name = name.replace("\\", "/").rpartition("/")[2] or path.name
        Budget(limits, packed=0).claim(path.stat().st_size)

    def names(self) -> list[str]:
        return [self._name]

    def size(self, name: str) -> int:
        return self._path.stat().st_size

    def open(self, name: str) -> IO[bytes]:
        return self._path.open("rb")

    def refused(self) -> Iterable[Skipped]:
        return ()


class FolderFiles:
    """The regular files beneath a folder; links are listed, not followed."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self._root = root
        self._refused: list[Skipped] = []
        self._sizes = {}
        budget = Budget(limits, packed=0)
        for path in self._walk():
            kind = path.lstat()
            name = path.relative_to(root).as_posix()
            if stat.S_ISLNK(kind.st_mode):
                self._refused.append(Skipped(where=name, reason="symbolic link"))
            elif stat.S_ISREG(kind.st_mode):
                budget.claim(kind.st_size)
                self._sizes[name] = kind.st_size

    def _walk(self) -> Iterator[Path]:
        for folder, folders, files in os.walk(self._root):
            folders.sort()
            here = Path(folder)
            links = [name for name in folders if (here / name).is_symlink()]
            yield from (here / name for name in sorted([*files, *links]))

    def names(self) -> list[str]:
        return sorted(self._sizes)

    def size(self, name: str) -> int:
        return self._sizes[name]

    def open(self, name: str) -> IO[bytes]:
        if name not in self._sizes:
            raise KeyError(name)
        try:
            return (self._root / name).open("rb")
        except OSError as error:
            raise UnreadableExport(f"The file {name} cannot be opened: {error.strerror}.") from error

    def refused(self) -> Iterable[Skipped]:
        return self._refused


class _AsUTF8(io.RawIOBase):
    """Bytes of UTF-16 as UTF-8."""

    def __init__(self, stream: IO[bytes], encoding: str, beginning: bytes) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._ready = self._decoder.decode(beginning).encode(errors="replace")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            data = self._stream.read(_CHUNK)
            self._ready = self._decoder.decode(data, final=not data).encode(errors="replace")
            if not data:
                break
        piece, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


class _Rewound(io.RawIOBase):
    """A stream whose beginning was looked at."""

    def __init__(self, stream: IO[bytes], beginning: bytes) -> None:
        self._stream = stream
        self._beginning = beginning

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._beginning[: len(buffer)] or self._stream.read(len(buffer))
        self._beginning = self._beginning[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def encoding_of(beginning: bytes) -> str:
    """UTF-16, with a mark or without one, by the first four bytes; else UTF-8, of which a mark is dropped."""
    if beginning[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    zeros = [place for place, byte in enumerate(beginning) if byte == 0]
    if zeros in ([1, 3], [0, 2]) and len(beginning) == _BEGINNING:
        return "utf-16-le" if zeros == [1, 3] else "utf-16-be"
    return "utf-8-sig"


def as_utf8(stream: IO[bytes]) -> IO[bytes]:
    """The stream in UTF-8; a text in UTF-16 is recoded while it is read."""
    beginning = stream.read(_BEGINNING)
    encoding = encoding_of(beginning)
    if encoding == "utf-8-sig":
        return io.BufferedReader(_Rewound(stream, beginning.removeprefix(codecs.BOM_UTF8)))
    return io.BufferedReader(_AsUTF8(stream, encoding, beginning))


@contextmanager
def open_files(path: Path, limits: Limits | None = None, *, name: str = "") -> Iterator[Files]:
    """The files at `path`, recognised by content and not by name. Raises `UnreadableExport`.

    `name`: that of an uploaded file, which is stored under another one.
    """
    limits = limits or Limits()
    try:
        kind = path.stat()
    except OSError as error:
        raise UnreadableExport("There is no such file or folder.") from error
    if stat.S_ISDIR(kind.st_mode):
        yield FolderFiles(path, limits)
        return
    if not stat.S_ISREG(kind.st_mode):
        raise UnreadableExport("This is neither a file nor a folder.")
    if kind.st_size == 0:
        raise UnreadableExport("The file is empty. Download the export again and take the whole file.")
    with ExitStack() as opened:
        try:
            stream = opened.enter_context(path.open("rb"))
        except OSError as error:
            raise UnreadableExport("The file cannot be opened.") from error
        if is_zip(stream):
            yield ZipEntries(stream, Budget(limits, packed=kind.st_size), opened)
        else:
            yield SingleFile(path, limits, name)
