"""Opens the files of an export: a folder, a zip, a zip in a zip or a single file. Names are data, never paths.

A reader asks for names and opens streams; it never gets files that are too large, too deeply nested or unsafe.
"""

import codecs
import io
import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

from core.text import Sentence, sentence_of
from core.text import gettext_noop as _
from imports.reading.items import Skipped, UnreadableExport
from imports.reading.limits import TOO_MANY, BeyondLimits, Budget, Limits

_CHUNK = 65536


_DIRECTORY_END = b"PK\x05\x06"
_DIRECTORY_END_64 = b"PK\x06\x06"
_DIRECTORY_ENTRY = b"PK\x01\x02"
_BEGINNINGS = (b"PK\x03\x04", _DIRECTORY_END)
_DRIVE = re.compile(r"[A-Za-z]:")
# What messages have attached, in Recollect's export and in ChatGPT's: a zip among it is a file like any other.
_ATTACHED = re.compile(r"(?:^|/)(?:attachments/[0-9a-f]{12} [^/]+|file[-_][0-9A-Za-z]{6,64}(?![0-9A-Za-z])[^/]*)\Z")
# macOS adds these to every zip it makes.
_CLUTTER = re.compile(r"(^|/)(__MACOSX/|\.DS_Store$|\._)")
EMPTY = _("This file is empty.")
_INCOMPLETE = _("This zip is damaged or incomplete. Download the export again, and wait for the whole file.")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, struct.error, RuntimeError, ValueError, OSError)


def is_attached(name: str) -> bool:
    """Whether it is a file of a message, by its name, and no part of the export's own texts."""
    return _ATTACHED.search(name) is not None


class PiecesReader(io.RawIOBase):
    """A stream of the bytes of an iterator, which is asked for the next piece only when it is read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        data, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _unpacked(entry: IO[bytes]) -> Iterator[bytes]:
    """Small pieces: never more than an entry claims. An error of the zip becomes a sentence."""
    with entry:
        try:
            yield from iter(lambda: entry.read(_CHUNK), b"")
        except _DAMAGED as error:
            raise UnreadableExport(_INCOMPLETE) from error


def _reason_to_refuse(entry: zipfile.ZipInfo) -> str | None:
    name = entry.orig_filename.replace("\\", "/")
    if not entry.filename or "\0" in name or name.startswith("/") or _DRIVE.match(name) or ".." in name.split("/"):
        return _("unsafe name")
    if len(name) > 1_000:
        return _("a name of more than 1,000 characters")
    if stat.S_ISLNK(entry.external_attr >> 16):
        return _("symbolic link")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return _("packed in a way that is not supported")
    return None


def _check_directory(stream: IO[bytes], budget: Budget) -> None:
    """Counts the directory's entries before `zipfile` creates an object for each."""
    end = stream.seek(0, io.SEEK_END)
    # The longest record at the end with its comment, and what a large zip has before it.
    tail_at = stream.seek(max(0, end - 65_557 - 76))
    tail = stream.read()
    at = tail.rfind(_DIRECTORY_END)
    if at < 0 or len(tail) < at + 22:
        raise UnreadableExport(_INCOMPLETE)
    size = struct.unpack_from("<L", tail, at + 12)[0]
    at_64 = tail.rfind(_DIRECTORY_END_64, 0, at)
    if at_64 >= 0 and at_64 + 48 <= at:
        size = struct.unpack_from("<Q", tail, at_64 + 40)[0]
        at = at_64
    limits = budget.limits
    if size > limits.entries * 400:
        raise BeyondLimits(Sentence(TOO_MANY, count=limits.entries))
    stream.seek(max(0, tail_at + at - size))
    if stream.read(size).count(_DIRECTORY_ENTRY) > limits.entries:
        raise BeyondLimits(Sentence(TOO_MANY, count=limits.entries))
    stream.seek(0)


_BEGINNING = 4


class Files:
    """The files of an export beneath one root, and the bytes that stand in their texts.

    A name is relative, with `/`; a single file has its own name, and an entry of a zip in an export `inner.zip/name`.
    The bytes lie in a temporary file: a conversation may have hundreds of pictures, and memory has room for few. One
    thread may take more of them while another reads.
    """

    def __init__(self, limits: Limits, opened: ExitStack) -> None:
        self.limits = limits
        # It owns the files that zips are read from.
        self._opened = opened
        # By name: the size, unpacked, and what opens it.
        self._entries: dict[str, tuple[int, Callable[[], IO[bytes]]]] = {}
        self._refused: list[Skipped] = []
        # The names of files that are not read, or not to their ends; why, until the import's report has it.
        self._reported: set[str] = set()
        self._news: list[Skipped] = []
        # What of it cannot be read, by name: if nothing else can, the first is why.
        self.damaged: dict[str, UnreadableExport] = {}
        self._kept: IO[bytes] | None = None
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0
        # The names of the files that were read: every other one is listed by name.
        self.opened: set[str] = set()
        # The keys at the beginning of its JSON files (`json_streams.shape`), for which every reader asks.
        self.shapes: dict[str, set[str]] = {}

    def add_folder(self, root: Path) -> None:
        """Its regular files, sorted; links are listed and not followed. A zip among them is read as one."""
        budget = Budget(self.limits, packed=0)
        found: dict[str, tuple[Path, int]] = {}
        for folder, folders, names in os.walk(root):
            folders.sort()
            here = Path(folder)
            for path in (here / name for name in sorted([*names, *folders])):
                kind, place = path.lstat(), path.relative_to(root).as_posix()
                if stat.S_ISLNK(kind.st_mode):
                    self._refused.append(Skipped(where=place, reason=_("symbolic link")))
                elif stat.S_ISREG(kind.st_mode):
                    budget.claim(kind.st_size)
                    found[place] = path, kind.st_size
        for place, (path, size) in sorted(found.items()):
            self._entries[place] = size, partial(_opened_file, path, place)
        for place in filter(_is_named_as_zip, sorted(found)):
            self._add_inner(place, Budget(self.limits, packed=found[place][1]))

    def add_file(self, path: Path, name: str) -> None:
        size = path.stat().st_size
        Budget(self.limits, packed=0).claim(size)
        self._entries[name] = size, partial(_opened_file, path, name)

    def add_zip(self, stream: IO[bytes], budget: Budget, *, within: str = "", is_inner: bool = False) -> None:
        """The readable entries of a zip, and of the zips in it. Raises `UnreadableExport`."""
        _check_directory(stream, budget)
        try:
            packed_zip = self._opened.enter_context(zipfile.ZipFile(stream))
        except _DAMAGED as error:
            raise UnreadableExport(_INCOMPLETE) from error
        found: dict[str, zipfile.ZipInfo] = {}
        packed = 0
        for entry in packed_zip.infolist():
            budget.claim(entry.file_size, entry.compress_size)
            packed += entry.compress_size
            # Some programs of Windows write its separator.
            name = entry.filename.replace("\\", "/")
            if name.endswith("/") or _CLUTTER.search(name):
                continue
            if entry.flag_bits & 1:
                message = _(
                    "This zip is protected with a password. Unpack it, and bring in the folder or a zip without a "
                    "password."
                )
                self.damaged[within + name] = UnreadableExport(message)
            elif reason := _reason_to_refuse(entry):
                self._refused.append(Skipped(where=within + entry.orig_filename[:1_000], reason=reason))
            elif name in found:
                self._refused.append(Skipped(where=within + name, reason=_("a second entry of the same name")))
            else:
                found[name] = entry
        # Entries that share their bytes add up to more than the file has.
        if packed > stream.seek(0, io.SEEK_END):
            raise UnreadableExport(_("The entries of this zip overlap, as in no export: it is not read."))
        for name, entry in found.items():
            opens = partial(_opened_entry, packed_zip, entry)
            self._entries[within + name] = entry.file_size, opens
        for name in filter(_is_named_as_zip, found):
            self._add_inner(within + name, budget, is_too_deep=is_inner)

    def _add_inner(self, name: str, budget: Budget, *, is_too_deep: bool = False) -> None:
        """The entries of a zip in the export in its place; one that cannot be read is listed, and all else is read."""
        try:
            with self._entries[name][1]() as packed:
                if packed.read(4) not in _BEGINNINGS:
                    return
                is_packed = not packed.seekable()
            if is_too_deep:
                raise UnreadableExport(
                    _("This zip is in a zip in a zip, deeper than can be read. Unpack the outer ones.")
                )
            stream = self._copied(name, budget) if is_packed else self._entries[name][1]()
            self.add_zip(self._opened.enter_context(stream), budget, within=f"{name}/", is_inner=is_packed)
        except BeyondLimits:
            raise
        except UnreadableExport as error:
            self._entries = {place: each for place, each in self._entries.items() if not place.startswith(f"{name}/")}
            self.damaged[name] = error
            return
        del self._entries[name]

    def _copied(self, name: str, budget: Budget) -> IO[bytes]:
        """A copy that can be read from any position: of a packed zip nothing else can. Counted before it is written."""
        budget.claim_copy(self.size(name))
        folder = None if budget.limits.temporary is None else str(budget.limits.temporary)
        copy: Any = tempfile.SpooledTemporaryFile(8 * 1024 * 1024, dir=folder)  # noqa: SIM115 - its caller closes it
        try:
            with self._entries[name][1]() as packed:
                while chunk := packed.read(1024 * 1024):
                    budget.check_free()
                    copy.write(chunk)
        except BaseException:
            copy.close()
            raise
        copy.seek(0)
        found: IO[bytes] = copy
        return found

    def names(self) -> list[str]:
        """All readable names, in the order of the source for a zip, sorted for a folder."""
        return [*self._entries]

    def refused(self) -> list[Skipped]:
        """Entries that are not read, each with its reason: unsafe names, symbolic links, damage."""
        unread = [name for name in self.damaged if name not in self.opened]
        return [*self._refused, *(Skipped(where=name, reason=sentence_of(self.damaged[name])) for name in unread)]

    def report(self, name: str, reason: str) -> None:
        """Notes, once for each file, why it is not read, or not to its end."""
        if name not in self._reported:
            self._reported.add(name)
            self._news.append(Skipped(where=name, reason=reason))

    def news(self) -> list[Skipped]:
        """What was noted since the last call."""
        found, self._news = self._news, []
        return found

    def size(self, name: str) -> int:
        """Bytes, unpacked."""
        return self._places[name][1] if name in self._places else self._entries[name][0]

    def open(self, name: str) -> IO[bytes]:
        """A stream of the bytes, counted against the limits while it is read: raises `UnreadableExport` beyond them."""
        if name not in self._places or self._kept is None:
            self.opened.add(name)
            return self._entries[name][1]()
        start, size = self._places[name]
        return io.BytesIO(os.pread(self._kept.fileno(), size, start))

    def look(self, name: str) -> IO[bytes]:
        """The same to see what a file is, which does not count as reading it: a damaged one ends there."""
        return io.BufferedReader(PiecesReader(self._beginning_of(name)))

    def _beginning_of(self, name: str) -> Iterator[bytes]:
        try:
            with self._entries[name][1]() as stream:
                yield from iter(lambda: stream.read(_CHUNK), b"")
        except UnreadableExport as error:
            self.damaged[name] = error

    def keep(self, data: bytes) -> str:
        """Takes bytes that stand in a text of the export, such as a picture in base64, under a name for `open`."""
        if self._kept is None:
            self._kept = tempfile.TemporaryFile(buffering=0, dir=self.limits.temporary)  # noqa: SIM115 - closed below
        Budget(self.limits, packed=0).check_free()
        # No entry of a zip and no file has such a name.
        name = f"\0{len(self._places)}"
        start, self._end = self._end, self._end + len(data)
        written = 0
        while written < len(data):
            written += os.pwrite(self._kept.fileno(), data[written:], start + written)
        self._places[name] = start, len(data)
        return name

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()


def _is_named_as_zip(name: str) -> bool:
    return name.lower().endswith(".zip") and not is_attached(name)


def _opened_file(path: Path, name: str) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise UnreadableExport(f"The file {name} cannot be opened: {error.strerror}.") from error


def _opened_entry(packed_zip: zipfile.ZipFile, entry: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return io.BufferedReader(PiecesReader(_unpacked(packed_zip.open(entry))), _CHUNK)
    except _DAMAGED as error:
        raise UnreadableExport(_INCOMPLETE) from error


def _recoded(stream: IO[bytes], encoding: str, beginning: bytes) -> Iterator[bytes]:
    """Bytes of UTF-16 as UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    for data in chain([beginning], iter(lambda: stream.read(_CHUNK), b"")):
        yield decoder.decode(data).encode(errors="replace")
    yield decoder.decode(b"", final=True).encode(errors="replace")


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
        rest = iter(lambda: stream.read(_CHUNK), b"")
        return io.BufferedReader(PiecesReader(chain([beginning.removeprefix(codecs.BOM_UTF8)], rest)))
    return io.BufferedReader(PiecesReader(_recoded(stream, encoding, beginning)))


def beginning_of(files: Files, name: str, size: int) -> str:
    """The first bytes of a file, as a text."""
    with files.look(name) as stream:
        return as_utf8(stream).read(size).decode(errors="replace")


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
    with ExitStack() as opened:
        files = Files(limits, opened)
        opened.callback(files.close)
        if stat.S_ISDIR(kind.st_mode):
            files.add_folder(path)
        elif not stat.S_ISREG(kind.st_mode):
            raise UnreadableExport("This is neither a file nor a folder.")
        elif kind.st_size == 0:
            raise UnreadableExport(EMPTY)
        else:
            try:
                stream = opened.enter_context(path.open("rb"))
            except OSError as error:
                raise UnreadableExport(_("The file cannot be opened.")) from error
            if stream.read(4) in _BEGINNINGS:
                files.add_zip(stream, Budget(limits, packed=kind.st_size))
            else:
                files.add_file(path, name.replace("\\", "/").rpartition("/")[2] or path.name)
        yield files
