"""Reads JSON Lines logs of terminal agents: one line in memory at a time, with a length limit."""

import io
import json
import sys
from collections.abc import Iterator
from itertools import islice
from typing import IO

from core.text import Sentence, sentence_of
from core.text import gettext_noop as _
from imports.reading.files import Files, PiecesReader, as_utf8
from imports.reading.items import Skipped, UnreadableExport
from imports.reading.limits import Limits
from imports.reading.values import Fields, id_of, line_of

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdError, ZstdFile
else:
    from backports.zstd import DecompressionParameter, ZstdError, ZstdFile

LONGEST_LINE = 64 * 1024 * 1024
JsonLine = tuple[int, Fields | Skipped]


def json_lines(files: Files, name: str) -> Iterator[JsonLine]:
    """The number and object of each line; `Skipped` instead of the object if the line is invalid."""
    try:
        with files.open(name) as stream:
            for number, raw in _numbered(as_utf8(_unpacked(stream, name, files.size(name)))):
                value = _parsed(raw)
                if value is not None:
                    yield number, value if isinstance(value, dict) else Skipped(where=f"{name}:{number}", reason=value)
    except UnreadableExport as error:
        yield 0, Skipped(where=name, reason=sentence_of(error))


def first_lines(files: Files, name: str, at_most: int = 10) -> list[Fields]:
    """The objects of the first lines, by which a log is recognised."""
    try:
        with files.look(name) as stream:
            lines = islice(_numbered(as_utf8(_unpacked(stream, name, files.size(name)))), at_most)
            return [value for _number, raw in lines if isinstance(value := _parsed(raw), dict)]
    except UnreadableExport:
        return []


def _unpacked(stream: IO[bytes], name: str, packed: int) -> IO[bytes]:
    """The lines of a log that was packed by Zstandard, in bounds against bombs; any other log as it is."""
    if not name.endswith(".zst"):
        return stream
    return io.BufferedReader(PiecesReader(_pieces_of_log(stream, name, packed)))


def _pieces_of_log(stream: IO[bytes], name: str, packed: int) -> Iterator[bytes]:
    """Counts what it unpacks: against the ratio of a zip, and against the memory that a window takes."""
    limits, unpacked = Limits(), 0
    allowed = min(max(limits.ratio_from_bytes, limits.ratio * packed), limits.unpacked_bytes)
    # A log's window has 128 MB at most.
    file = ZstdFile(stream, options={DecompressionParameter.window_log_max: 27})
    try:
        while data := file.read(65536):
            unpacked += len(data)
            if unpacked > allowed:
                message = _("%(file)s unpacks to far more than a log does: the rest is not read.")
                raise UnreadableExport(Sentence(message, file=name))
            yield data
    except (ZstdError, EOFError, OSError) as error:
        raise UnreadableExport(Sentence(_("%(file)s is damaged or incomplete."), file=name)) from error


def _numbered(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    number = 0
    while raw := stream.readline(LONGEST_LINE):
        number += 1
        yield number, raw
        # Skip the rest of a line that is too long.
        while len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
            raw = stream.readline(LONGEST_LINE)


def _parsed(raw: bytes) -> Fields | str | None:
    """The object of a line, or the reason why there is none, or None for an empty line."""
    if not raw.strip(b" \t\r\n\0"):
        return None
    if len(raw) == LONGEST_LINE:
        return _("this line is too long to be read")
    try:
        value = json.loads(raw.decode("utf-8-sig", errors="replace"))
    except (ValueError, RecursionError):
        return _("this line is no JSON") if raw.endswith(b"\n") else _("the last line is cut off")
    return value if isinstance(value, dict) else _("this line is no JSON object")


def titles_by_id(files: Files, name: str) -> dict[str, str]:
    """An index of sessions, one per line: the last entry of an id counts."""
    found = {}
    for _number, line in json_lines(files, name):
        if isinstance(line, dict) and (text := line_of(line, "thread_name")):
            found[id_of(line, "id")] = text
    return found
