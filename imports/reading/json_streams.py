"""Streams the values of JSON files and JSON Lines, one in memory at a time, without recursion, broken text repaired.

A single object is read as a list of one, because products export either.
"""

import codecs
import io
import re
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

import ijson

from core.text import gettext_noop as _
from core.text import sentence_of
from imports.reading.files import Files, PiecesReader, encoding_of, is_attached
from imports.reading.items import UnreadableExport

Read = TypeVar("Read")
_CHUNK = 65536
_ESCAPES = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F])|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_CONTROLS = dict.fromkeys(range(32), " ") | {ord(each): each for each in "\t\n\r"}
_BROKEN = (ijson.JSONError, UnicodeDecodeError, ValueError, OverflowError)


class BrokenJSON(Exception):
    """The text ends early, or is invalid from here on."""


def _clean(stream: IO[bytes]) -> Iterator[bytes]:
    """JSON bytes as clean UTF-8: marks dropped, bad bytes and lone halves of surrogate pairs replaced by U+FFFD."""
    beginning = stream.read(4)
    decoder = codecs.getincrementaldecoder(encoding_of(beginning))(errors="replace")
    held, data = decoder.decode(beginning), beginning
    while data:
        data = stream.read(_CHUNK)
        text = held + decoder.decode(data, final=not data)
        cut = _end_of_escapes(text) if data else len(text)
        held = text[cut:]
        whole = text[:cut]
        if "\\ud" in whole or "\\uD" in whole:
            whole = _ESCAPES.sub(lambda found: "\\ufffd" if found[2] else found[0], whole)
        yield whole.translate(_CONTROLS).encode()


def _end_of_escapes(text: str) -> int:
    """Where to cut so that no escape, nor a pair of them, is split."""
    at = text.find("\\", max(0, len(text) - 12))
    if at < 0:
        return len(text)
    while at > 0 and text[at - 1] == "\\":
        at -= 1
    return at if at > 0 or len(text) < _CHUNK else len(text)


def elements(stream: IO[bytes]) -> Iterator[Any]:
    """The elements of an array, or the values one after the other, as in JSON Lines. Raises `BrokenJSON` where the
    text breaks off.
    """
    events = _events(stream)
    for kind, value in events:
        if kind == "start_array":
            yield from _until_the_end(events)
        else:
            yield _build(events, kind, value)


def members(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """The values of one object under their names, each element of an array by itself. Raises `BrokenJSON`."""
    events = _events(stream)
    if next(events, ("end", None))[0] != "start_map":
        raise BrokenJSON
    name = ""
    for kind, value in events:
        if kind == "map_key":
            name = value
        elif kind == "start_array":
            yield from ((name, each) for each in _until_the_end(events))
        elif kind == "end_map":
            return
        else:
            yield name, _build(events, kind, value)


def _until_the_end(events: Iterator[tuple[str, Any]]) -> Iterator[Any]:
    for kind, value in events:
        if kind == "end_array":
            return
        yield _build(events, kind, value)


def _events(stream: IO[bytes]) -> Iterator[tuple[str, Any]]:
    try:
        yield from ijson.basic_parse(PiecesReader(_clean(stream)), buf_size=_CHUNK, multiple_values=True)
    except _BROKEN as error:
        raise BrokenJSON from error


def _build(events: Iterator[tuple[str, Any]], kind: str, value: Any) -> Any:
    """One value, at any depth of nesting."""
    if kind not in ("start_array", "start_map"):
        return value
    builder = ijson.ObjectBuilder()
    builder.event(kind, value)
    depth = 1
    while depth:
        kind, value = next(events, ("end", None))
        if kind == "end" or depth > 200_000:
            raise BrokenJSON
        builder.event(kind, value)
        depth += (kind in ("start_array", "start_map")) - (kind in ("end_array", "end_map"))
    return builder.value


def shape(files: Files, name: str) -> set[str]:
    """The paths of keys at the beginning of a JSON file, three levels deep, without the outer array: `chat.history`."""
    if (known := files.shapes.get(name)) is not None:
        return known
    with files.look(name) as stream:
        beginning = stream.read(256 * 1024)
    is_json = beginning.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n").startswith((b"{", b"["))
    found = _paths(beginning) if is_json else set()
    if len(files.shapes) < LOOKED_AT:
        files.shapes[name] = found
    return found


def _paths(beginning: bytes) -> set[str]:
    paths: set[str] = set()
    here: list[str] = []
    try:
        for kind, value in _events(io.BytesIO(beginning)):
            if kind == "start_map":
                here.append("")
            elif kind == "end_map":
                here.pop()
            elif kind == "map_key" and len(here) <= 3:
                here[-1] = value
                paths.add(".".join(here))
    except BrokenJSON:
        pass  # Only the beginning was read.
    return paths


def json_names(files: Files, at_most: int | None = None) -> list[str]:
    """Files that may be JSON by their names; a single file may have any name."""
    names = files.names()
    if len(names) == 1:
        return names
    endings = (".json", ".jsonl", ".ndjson", ".txt")
    return [name for name in names if name.lower().endswith(endings) and not is_attached(name)][:at_most]


# A product is recognised by so many of its files.
LOOKED_AT = 500


def names_with(files: Files, *requested: set[str], at_most: int | None = None) -> list[str]:
    """Files whose beginning has all keys of one of the sets."""
    return [name for name in json_names(files, at_most) if any(each <= shape(files, name) for each in requested)]


def of_shapes(*shapes: set[str], is_sure: bool = True) -> Callable[[Files], int]:
    """How sure a reader is of an export by the keys of its JSON files; another product may have the same ones."""
    return lambda files: (95 if is_sure else 90) if names_with(files, *shapes, at_most=LOOKED_AT) else 0


def streamed(files: Files, name: str, read: Callable[[IO[bytes]], Iterator[Read]]) -> Iterator[Read]:
    """What `read` finds in a file, which is reported if it ends early or is damaged."""
    try:
        with files.open(name) as stream:
            yield from read(stream)
    except UnreadableExport as error:
        files.report(name, sentence_of(error))
    except BrokenJSON:
        files.report(name, _("the file ends early or is damaged here: what stands before it came in"))


def records(
    files: Files, name: str, read: Callable[[IO[bytes]], Iterator[Any]] = elements
) -> Iterator[tuple[str, Any]]:
    """Each element of a file with its place."""
    return ((f"{name}[{index}]", value) for index, value in enumerate(streamed(files, name, read)))


def parts(files: Files, name: str) -> Iterator[tuple[str, Any]]:
    """The same of each element of each list in a file of one object, which may have all conversations."""
    found = enumerate(streamed(files, name, members))
    return ((f"{name}:{part}[{index}]", value) for index, (part, value) in found)
