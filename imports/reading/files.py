"""Opens the files of an export: a folder, a zip, a zip in a zip or a single file. Names are data, never paths.

A reader asks for names and opens streams; it never gets files that are too large, too deeply nested or unsafe.
"""

import codecs
import io
import os
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

from core.text import Sentence, sentence_of
from core.text import gettext_noop as _
from imports.reading.items import Skipped, UnreadableExport

# --- Limits the unpacked size of an export: counted over all levels of nested zips, before anything is unpacked ---

_MEGABYTE = 1024 * 1024
_TOO_MANY = _("This export has more than %(count)s files, more than can be read.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The largest export that is read. Chat JSON has a compression ratio of 5 to 20, very repetitive text of 60."""

    unpacked_bytes: int = 50 * 1024 * _MEGABYTE
    entries: int = 200_000
    ratio: int = 200
    # A small file may have any compression ratio.
    ratio_from_bytes: int = 32 * _MEGABYTE
    # A zip, zips in it, and zips in those.
    depth: int = 3
    # Copies of zips in a zip: their folder (the system's by default), the space that stays free there, and how many
    # bytes they may have in all: a zip packed once more is no smaller, so hardly more than the file itself.
    temporary: Path | None = None
    free_bytes: int = 256 * _MEGABYTE
    copies_ratio: float = 2.0
    copies_from_bytes: int = 8 * _MEGABYTE


class Budget:
    """Counts the claimed sizes of one export, at every level, against the limits."""

    def __init__(self, limits: Limits, *, packed: int) -> None:
        self.limits = limits
        self._packed = packed
        self._bytes = 0
        self._entries = 0
        self._copied = 0

    def claim(self, size: int, packed: int | None = None) -> None:
        """Counts one entry of `size` bytes unpacked; `packed` is its size in the zip. Raises `UnreadableExport`."""
        self._entries += 1
        self._bytes += size
        if self._entries > self.limits.entries:
            raise UnreadableExport(Sentence(_TOO_MANY, count=self.limits.entries))
        if self._bytes > self.limits.unpacked_bytes:
            gigabytes = round(self.limits.unpacked_bytes / (1024 * _MEGABYTE))
            message = _("This export unpacks to more than %(count)s GB, more than can be read.")
            raise UnreadableExport(Sentence(message, count=gigabytes))
        if self._is_bomb(size, packed) or self._is_bomb(self._bytes, self._packed or None):
            message = _(
                "This zip unpacks to more than %(count)s times its size, as no export does: it is not read. "
                "Download the export again."
            )
            raise UnreadableExport(Sentence(message, count=self.limits.ratio))

    def claim_copy(self, size: int) -> None:
        """Counts the copy of a zip in a zip, before it is made. Raises `UnreadableExport`."""
        self._copied += size
        limits = self.limits
        if self._copied > limits.copies_from_bytes and self._copied > limits.copies_ratio * self._packed:
            raise UnreadableExport(
                _(
                    "The zips in this zip are much larger than the file, as in no export: they are not read. "
                    "Unpack the file, and bring in what was in it."
                )
            )

    def check_free(self) -> None:
        """Raises `UnreadableExport` when the copies would fill the disk."""
        folder = self.limits.temporary or Path(tempfile.gettempdir())
        if shutil.disk_usage(folder).free < self.limits.free_bytes:
            raise UnreadableExport(_("The server's disk has no room for this file. Ask the server's administrator."))

    def _is_bomb(self, size: int, packed: int | None) -> bool:
        return packed is not None and size > self.limits.ratio_from_bytes and size > self.limits.ratio * packed


# --- Opens a zip, with the zips in it, as files: checks the directory before unpacking, and never uses names as paths

_DIRECTORY_END = b"PK\x05\x06"
_DIRECTORY_END_64 = b"PK\x06\x06"
_DIRECTORY_ENTRY = b"PK\x01\x02"
_BEGINNINGS = (b"PK\x03\x04", _DIRECTORY_END)
_END_RECORD_AND_COMMENT = 22 + 65535
_DIRECTORY_BYTES_PER_ENTRY = 400
_SPOOL_BYTES = 8 * 1024 * 1024
_COPIED_AT_ONCE = 1024 * 1024
_DRIVE = re.compile(r"[A-Za-z]:")
# What messages have attached, in Recollect's export and in ChatGPT's: a zip among it is a file like any other.
_ATTACHED = re.compile(r"(?:^|/)(?:attachments/[0-9a-f]{12} [^/]+|file[-_][0-9A-Za-z]{6,64}(?![0-9A-Za-z])[^/]*)\Z")
# macOS adds these to every zip it makes.
_CLUTTER = re.compile(r"(^|/)(__MACOSX/|\.DS_Store$|\._)")
_INCOMPLETE = _("This zip is damaged or incomplete. Download the export again, and wait for the whole file.")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, ValueError, OSError)


def _in_file(name: str, reason: str) -> Sentence:
    return Sentence(_("%(place)s: %(reason)s"), place=name, reason=Sentence(reason))


def is_attached(name: str) -> bool:
    """Whether it is a file of a message, by its name, and no part of the export's own texts."""
    return _ATTACHED.search(name) is not None


def is_zip(stream: IO[bytes]) -> bool:
    """Whether the stream begins like a zip; its position is reset."""
    beginning = stream.read(4)
    stream.seek(0)
    return beginning in _BEGINNINGS


class ZipEntries:
    """The readable entries of a zip. Entries of a zip in it are named `inner.zip/name`.

    `opened` owns the temporary copies that zips in a zip are read from.
    """

    def __init__(self, stream: IO[bytes], budget: Budget, opened: ExitStack, depth: int = 1) -> None:
        _check_directory(stream, budget)
        try:
            self._zip = opened.enter_context(zipfile.ZipFile(stream))
        except (*_DAMAGED, RuntimeError) as error:
            raise UnreadableExport(_INCOMPLETE) from error
        self._refused: list[Skipped] = []
        self._entries: dict[str, zipfile.ZipInfo] = {}
        self._inner: dict[str, ZipEntries] = {}
        self._claim(stream, budget)
        self._unpack_inner(budget, opened, depth)

    def _claim(self, stream: IO[bytes], budget: Budget) -> None:
        packed = 0
        for entry in self._zip.infolist():
            budget.claim(entry.file_size, entry.compress_size)
            packed += entry.compress_size
            self._sort(entry)
        # Entries that share their bytes add up to more than the file has.
        if packed > stream.seek(0, io.SEEK_END):
            raise UnreadableExport(_("The entries of this zip overlap, as in no export: it is not read."))

    def _sort(self, entry: zipfile.ZipInfo) -> None:
        # Some programs of Windows write its separator.
        name = entry.filename.replace("\\", "/")
        if name.endswith("/") or _CLUTTER.search(name):
            return
        if entry.flag_bits & 1:
            raise UnreadableExport(
                _(
                    "This zip is protected with a password. Unpack it, and bring in the folder or a zip without a "
                    "password."
                )
            )
        if reason := _reason_to_refuse(entry):
            self._refused.append(Skipped(where=entry.orig_filename[:1_000], reason=reason))
        elif name in self._entries:
            self._refused.append(Skipped(where=name, reason=_("a second entry of the same name")))
        else:
            self._entries[name] = entry

    def _unpack_inner(self, budget: Budget, opened: ExitStack, depth: int) -> None:
        zips = [name for name in self._entries if name.lower().endswith(".zip") and not is_attached(name)]
        for name in zips:
            with self.open(name) as beginning:
                if beginning.read(4) not in _BEGINNINGS:
                    continue
            if depth == budget.limits.depth:
                raise UnreadableExport(
                    _("This zip holds zips in zips, deeper than can be read. Unpack the outer ones.")
                )
            copy = self._copied(name, budget)
            opened.callback(copy.close)
            self._inner[name] = ZipEntries(copy, budget, opened, depth + 1)
            del self._entries[name]

    def _copied(self, name: str, budget: Budget) -> IO[bytes]:
        """A copy that can be read from any position: of a packed zip nothing else can. Counted before it is written."""
        budget.claim_copy(self._entries[name].file_size)
        folder = None if budget.limits.temporary is None else str(budget.limits.temporary)
        copy: Any = tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=folder)  # noqa: SIM115 - `opened` closes it
        try:
            with self.open(name) as packed:
                while chunk := packed.read(_COPIED_AT_ONCE):
                    budget.check_free()
                    copy.write(chunk)
        except BaseException:
            copy.close()
            raise
        copy.seek(0)
        found: IO[bytes] = copy
        return found

    def names(self) -> list[str]:
        return [*self._entries, *_names_within(self._inner)]

    def size(self, name: str) -> int:
        if name in self._entries:
            return self._entries[name].file_size
        entries, inner_name = _locate(self._inner, name)
        return entries.size(inner_name)

    def open(self, name: str) -> IO[bytes]:
        if name not in self._entries:
            entries, inner_name = _locate(self._inner, name)
            return entries.open(inner_name)
        try:
            return io.BufferedReader(PiecesReader(_unpacked(self._zip.open(self._entries[name]), name)), _CHUNK)
        except (*_DAMAGED, RuntimeError) as error:
            raise UnreadableExport(_in_file(name, _INCOMPLETE)) from error

    def refused(self) -> Iterable[Skipped]:
        yield from self._refused
        yield from _refused_within(self._inner)


def _names_within(zips: Mapping[str, ZipEntries]) -> Iterator[str]:
    return (f"{outer}/{name}" for outer, entries in zips.items() for name in entries.names())


def _refused_within(zips: Mapping[str, ZipEntries]) -> Iterator[Skipped]:
    for outer, entries in zips.items():
        for skipped in entries.refused():
            yield Skipped(where=f"{outer}/{skipped.where}", reason=skipped.reason)


def _locate(zips: Mapping[str, ZipEntries], name: str) -> tuple[ZipEntries, str]:
    for outer, entries in zips.items():
        if name.startswith(f"{outer}/"):
            return entries, name[len(outer) + 1 :]
    raise KeyError(name)


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


def _unpacked(entry: IO[bytes], name: str) -> Iterator[bytes]:
    """Small pieces: never more than an entry claims. An error of the zip becomes a sentence."""
    with entry:
        try:
            yield from iter(lambda: entry.read(_CHUNK), b"")
        except (*_DAMAGED, RuntimeError) as error:
            raise UnreadableExport(_in_file(name, _INCOMPLETE)) from error


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
    tail_at = stream.seek(max(0, end - _END_RECORD_AND_COMMENT - 76))
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
    if size > limits.entries * _DIRECTORY_BYTES_PER_ENTRY:
        raise UnreadableExport(Sentence(_TOO_MANY, count=limits.entries))
    stream.seek(max(0, tail_at + at - size))
    if stream.read(size).count(_DIRECTORY_ENTRY) > limits.entries:
        raise UnreadableExport(Sentence(_TOO_MANY, count=limits.entries))
    stream.seek(0)


# --- Opens the files of an export ---

_CHUNK = 65536
_BEGINNING = 4


class PlainFiles:
    """The regular files beneath a folder, whose links are listed and not followed; or one file that is no zip, under
    its own name or that of the uploaded file.
    """

    def __init__(self, path: Path, limits: Limits, opened: ExitStack, name: str = "") -> None:
        self._root = path
        self._refused: list[Skipped] = []
        self._sizes: dict[str, int] = {}
        self._is_folder = path.is_dir()
        self._inner: dict[str, ZipEntries] = {}
        budget = Budget(limits, packed=0)
        if not self._is_folder:
            self._claim(name.replace("\\", "/").rpartition("/")[2] or path.name, path.stat().st_size, budget)
            return
        for each in self._walk():
            kind = each.lstat()
            place = each.relative_to(path).as_posix()
            if stat.S_ISLNK(kind.st_mode):
                self._refused.append(Skipped(where=place, reason=_("symbolic link")))
            elif stat.S_ISREG(kind.st_mode):
                self._claim(place, kind.st_size, budget)
        for place in [name for name in self._sizes if name.lower().endswith(".zip") and not is_attached(name)]:
            stream = opened.enter_context(self.open(place))
            try:
                if is_zip(stream):
                    self._inner[place] = ZipEntries(stream, Budget(limits, packed=self._sizes[place]), opened)
                    del self._sizes[place]
            except UnreadableExport as error:
                self._refused.append(Skipped(where=place, reason=sentence_of(error)))
                del self._sizes[place]

    def _claim(self, name: str, size: int, budget: Budget) -> None:
        budget.claim(size)
        self._sizes[name] = size

    def _walk(self) -> Iterator[Path]:
        for folder, folders, files in os.walk(self._root):
            folders.sort()
            here = Path(folder)
            links = [name for name in folders if (here / name).is_symlink()]
            yield from (here / name for name in sorted([*files, *links]))

    def names(self) -> list[str]:
        return [*sorted(self._sizes), *_names_within(self._inner)]

    def size(self, name: str) -> int:
        if name in self._sizes:
            return self._sizes[name]
        entries, inner_name = _locate(self._inner, name)
        return entries.size(inner_name)

    def open(self, name: str) -> IO[bytes]:
        if name not in self._sizes:
            entries, inner_name = _locate(self._inner, name)
            return entries.open(inner_name)
        try:
            return (self._root / name if self._is_folder else self._root).open("rb")
        except OSError as error:
            raise UnreadableExport(f"The file {name} cannot be opened: {error.strerror}.") from error

    def refused(self) -> Iterable[Skipped]:
        return [*self._refused, *_refused_within(self._inner)]


class Files:
    """The files of an export beneath one root, and the bytes that stand in their texts.

    A name is relative, with `/`; a single file has its own name. The bytes lie in a temporary file: a conversation may
    have hundreds of pictures, and memory has room for few. One thread may take more of them while another reads.
    """

    def __init__(self, files: ZipEntries | PlainFiles, limits: Limits) -> None:
        self._files = files
        self.limits = limits
        self._kept: IO[bytes] | None = None
        self._places: dict[str, tuple[int, int]] = {}
        self._end = 0
        # The names of the files that were read: every other one is listed by name.
        self.opened: set[str] = set()
        # The keys at the beginning of its JSON files (`json_streams.shape`), for which every reader asks.
        self.shapes: dict[str, set[str]] = {}

    def names(self) -> list[str]:
        """All readable names, in the order of the source for a zip, sorted for a folder."""
        return self._files.names()

    def refused(self) -> Iterable[Skipped]:
        """Entries that are not read, each with its reason: unsafe names, symbolic links."""
        return self._files.refused()

    def size(self, name: str) -> int:
        """Bytes, unpacked."""
        return self._places[name][1] if name in self._places else self._files.size(name)

    def open(self, name: str) -> IO[bytes]:
        """A stream of the bytes, counted against the limits while it is read: raises `UnreadableExport` beyond them."""
        if name not in self._places or self._kept is None:
            self.opened.add(name)
            return self._files.open(name)
        start, size = self._places[name]
        return io.BytesIO(os.pread(self._kept.fileno(), size, start))

    def look(self, name: str) -> IO[bytes]:
        """The same to see what a file is, which does not count as reading it."""
        return self._files.open(name)

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
        files = Files(_files_at(path, kind, limits, opened, name), limits)
        opened.callback(files.close)
        yield files


def _files_at(
    path: Path, kind: os.stat_result, limits: Limits, opened: ExitStack, name: str
) -> ZipEntries | PlainFiles:
    if stat.S_ISDIR(kind.st_mode):
        return PlainFiles(path, limits, opened)
    if not stat.S_ISREG(kind.st_mode):
        raise UnreadableExport("This is neither a file nor a folder.")
    if kind.st_size == 0:
        raise UnreadableExport(_("The file is empty. Download the export again and take the whole file."))
    try:
        stream = opened.enter_context(path.open("rb"))
    except OSError as error:
        raise UnreadableExport(_("The file cannot be opened.")) from error
    if is_zip(stream):
        return ZipEntries(stream, Budget(limits, packed=kind.st_size), opened)
    return PlainFiles(path, limits, opened, name)
