"""Reads JSON Lines logs of terminal agents: one line in memory at a time, with a length limit."""

import json
from collections.abc import Iterator
from typing import IO, Any

from imports.reading.files import Files
from imports.reading.items import Skipped, UnreadableExport
from imports.reading.values import id_of, line_of

LONGEST_LINE = 64 * 1024 * 1024
JsonLine = tuple[int, dict[str, Any] | Skipped]


def json_lines(files: Files, name: str) -> Iterator[JsonLine]:
    """The number and object of each line; `Skipped` instead of the object if the line is invalid."""
    try:
        with files.open(name) as stream:
            for number, raw in _numbered(stream):
                value = _parsed(raw)
                if value is not None:
                    yield number, value if isinstance(value, dict) else Skipped(where=f"{name}:{number}", reason=value)
    except UnreadableExport as error:
        yield 0, Skipped(where=name, reason=str(error))


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
