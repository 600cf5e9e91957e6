"""Reads JSON Lines logs of terminal agents: one line in memory at a time, with a length limit."""

import io
import json
import sys
from collections.abc import Iterator
from typing import IO, Any

from imports.reading.files import Files, as_utf8
from imports.reading.items import Skipped, UnreadableExport
from imports.reading.limits import Limits
from imports.reading.values import id_of, line_of

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdError, ZstdFile
else:
    from backports.zstd import DecompressionParameter, ZstdError, ZstdFile

# A log's window has 128 MB at most.
_WINDOW_LOG = 27
LONGEST_LINE = 64 * 1024 * 1024
JsonLine = tuple[int, dict[str, Any] | Skipped]


def json_lines(files: Files, name: str) -> Iterator[JsonLine]:
    """The number and object of each line; `Skipped` instead of the object if the line is invalid."""
    try:
        with files.open(name) as stream:
            for number, raw in _numbered(as_utf8(_unpacked(stream, name, files.size(name)))):
                value = _parsed(raw)
                if value is not None:
                    yield number, value if isinstance(value, dict) else Skipped(where=f"{name}:{number}", reason=value)
    except UnreadableExport as error:
        yield 0, Skipped(where=name, reason=str(error))


def _unpacked(stream: IO[bytes], name: str, packed: int) -> IO[bytes]:
    """The lines of a log that was packed by Zstandard, in bounds against bombs; any other log as it is."""
    if not name.endswith(".zst"):
        return stream
    return io.BufferedReader(_UnpackingLog(stream, name, packed))


class _UnpackingLog(io.RawIOBase):
    """Counts what it unpacks: against the ratio of a zip, and against the memory that a window takes."""

    def __init__(self, stream: IO[bytes], name: str, packed: int) -> None:
        self._limits = Limits()
        self._file = ZstdFile(stream, options={DecompressionParameter.window_log_max: _WINDOW_LOG})
        self._name = name
        self._packed = packed
        self._unpacked = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            data = self._file.read(len(buffer))
        except (ZstdError, EOFError, OSError) as error:
            raise UnreadableExport(f"{self._name} is damaged or incomplete.") from error
        self._unpacked += len(data)
        allowed = max(self._limits.ratio_from_bytes, self._limits.ratio * self._packed)
        if self._unpacked > min(allowed, self._limits.unpacked_bytes):
            raise UnreadableExport(f"{self._name} unpacks to far more than a log does: the rest is not read.")
        buffer[: len(data)] = data
        return len(data)


def _numbered(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while raw := stream.readline(LONGEST_LINE):
        number += 1
        yield number, raw
        # Skip the rest of a line that is too long.
        while len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
            raw = stream.readline(LONGEST_LINE)


def _parsed(raw: bytes) -> dict[str, Any] | str | None:
    """The object of a line, or the reason why there is none, or None for an empty line."""
    if not raw.strip(b" \t\r\n\0"):
        return None
    if len(raw) == LONGEST_LINE:
        return "this line is too long to be read"
    try:
        value = json.loads(raw.decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        return "this line is no JSON" if raw.endswith(b"\n") else "the last line is cut off"
    return value if isinstance(value, dict) else "this line is no JSON object"


def titles_by_id(files: Files, name: str, key: str, title: str) -> dict[str, str]:
    """An index of sessions, one per line: the last entry of an id counts."""
    found = {}
    for _, line in json_lines(files, name):
        if isinstance(line, dict) and (text := line_of(line.get(title))):
            found[id_of(line.get(key))] = text
    return found
