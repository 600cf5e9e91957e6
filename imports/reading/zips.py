"""Opens a zip, with the zips in it, as files: checks the directory before unpacking, and never uses names as paths."""

import io
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import ExitStack
from typing import IO

from imports.reading.items import Skipped, UnreadableExport
from imports.reading.limits import Budget

_DIRECTORY_END = b"PK\x05\x06"
_DIRECTORY_END_64 = b"PK\x06\x06"
_DIRECTORY_ENTRY = b"PK\x01\x02"
_BEGINNINGS = (b"PK\x03\x04", _DIRECTORY_END)
_END_RECORD_AND_COMMENT = 22 + 65535
_DIRECTORY_BYTES_PER_ENTRY = 400
_SPOOL_BYTES = 8 * 1024 * 1024
_DRIVE = re.compile(r"[A-Za-z]:")
# macOS adds these to every zip it makes.
_CLUTTER = re.compile(r"(^|/)(__MACOSX/|\.DS_Store$|\._)")
_INCOMPLETE = "This zip is damaged or incomplete. Download the export again, and wait for the whole file."
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, ValueError, OSError)


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
            raise UnreadableExport("The entries of this zip overlap, as in no export: it is not read.")

    def _sort(self, entry: zipfile.ZipInfo) -> None:
        # Some programs of Windows write its separator.
        name = entry.filename.replace("\\", "/")
        if name.endswith("/") or _CLUTTER.search(name):
            return
        if entry.flag_bits & 1:
            raise UnreadableExport(
                "This zip is protected with a password. Unpack it, and bring in the folder or a zip without a password."
            )
        if reason := _reason_to_refuse(entry):
            self._refused.append(Skipped(where=entry.orig_filename, reason=reason))
        elif name in self._entries:
            self._refused.append(Skipped(where=name, reason="a second entry of the same name"))
        else:
            self._entries[name] = entry

    def _unpack_inner(self, budget: Budget, opened: ExitStack, depth: int) -> None:
        for name in [name for name in self._entries if name.lower().endswith(".zip")]:
            with self.open(name) as beginning:
                if beginning.read(4) not in _BEGINNINGS:
                    continue
            if depth == budget.limits.depth:
                raise UnreadableExport("This zip holds zips in zips, deeper than can be read. Unpack the outer ones.")
            copy = tempfile.SpooledTemporaryFile(_SPOOL_BYTES)  # noqa: SIM115 - `opened` closes it
            opened.callback(copy.close)
            with self.open(name) as packed:
                shutil.copyfileobj(packed, copy)
            copy.seek(0)
            self._inner[name] = ZipEntries(copy, budget, opened, depth + 1)
            del self._entries[name]

    def names(self) -> list[str]:
        inner = [f"{outer}/{name}" for outer, entries in self._inner.items() for name in entries.names()]
        return [*self._entries, *inner]

    def size(self, name: str) -> int:
        if name in self._entries:
            return self._entries[name].file_size
        entries, inner_name = self._locate(name)
        return entries.size(inner_name)

    def open(self, name: str) -> IO[bytes]:
        if name not in self._entries:
            entries, inner_name = self._locate(name)
            return entries.open(inner_name)
        try:
            return io.BufferedReader(_Unpacking(self._zip.open(self._entries[name]), name), 65536)
        except (*_DAMAGED, RuntimeError) as error:
            raise UnreadableExport(f"{name}: {_INCOMPLETE}") from error

    def refused(self) -> Iterable[Skipped]:
        yield from self._refused
        for outer, entries in self._inner.items():
            for skipped in entries.refused():
                yield Skipped(where=f"{outer}/{skipped.where}", reason=skipped.reason)

    def _locate(self, name: str) -> tuple["ZipEntries", str]:
        for outer, entries in self._inner.items():
            if name.startswith(f"{outer}/"):
                return entries, name[len(outer) + 1 :]
        raise KeyError(name)


class _Unpacking(io.RawIOBase):
    """Unpacks in small steps: never more than an entry claims. An error of the zip becomes a sentence."""

    def __init__(self, entry: IO[bytes], name: str) -> None:
        self._entry = entry
        self._name = name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._entry.read(len(buffer))
        except (*_DAMAGED, RuntimeError) as error:
            raise UnreadableExport(f"{self._name}: {_INCOMPLETE}") from error
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._entry.close()
        super().close()


def _reason_to_refuse(entry: zipfile.ZipInfo) -> str | None:
    name = entry.orig_filename.replace("\\", "/")
    if not entry.filename or "\0" in name or name.startswith("/") or _DRIVE.match(name) or ".." in name.split("/"):
        return "unsafe name"
    if stat.S_ISLNK(entry.external_attr >> 16):
        return "symbolic link"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "packed in a way that is not supported"
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
        raise UnreadableExport(f"This export has more than {limits.entries:,} files, more than can be read.")
    stream.seek(max(0, tail_at + at - size))
    if stream.read(size).count(_DIRECTORY_ENTRY) > limits.entries:
        raise UnreadableExport(f"This export has more than {limits.entries:,} files, more than can be read.")
    stream.seek(0)
