"""Streams the values of JSON files and JSON Lines, one in memory at a time, without recursion, broken text repaired.

Reads a value of unknown form as the expected text, number, list, object or time, or as an empty one.

A single object is read as a list of one, because products export either.
"""

import codecs
import hashlib
import io
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import IO, Any

import ijson

from core.text import Sentence, pg_text, sentence_of
from core.text import gettext_noop as _
from imports.reading.files import Files, Limits, PiecesReader, as_utf8, encoding_of, is_attached
from imports.reading.items import Skipped, UnreadableExport

_CHUNK = 65536
_PREFIX = 256 * 1024
_LONGEST_ESCAPE = 12
_MAX_DEPTH = 200_000
_SHAPE_DEPTH = 3
_ESCAPES = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F])|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_CONTROLS = dict.fromkeys(range(32), " ") | {ord(each): each for each in "\t\n\r"}
_BROKEN = (ijson.JSONError, UnicodeDecodeError, ValueError, OverflowError)


class BrokenJSON(Exception):
    """The text ends early, or is invalid from here on; perhaps with a sentence for the report."""


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
        yield _repaired(text[:cut]).encode()


def _end_of_escapes(text: str) -> int:
    """Where to cut so that no escape, nor a pair of them, is split."""
    at = text.find("\\", max(0, len(text) - _LONGEST_ESCAPE))
    if at < 0:
        return len(text)
    while at > 0 and text[at - 1] == "\\":
        at -= 1
    return at if at > 0 or len(text) < _CHUNK else len(text)


def _repaired(text: str) -> str:
    if "\\ud" in text or "\\uD" in text:
        text = _ESCAPES.sub(lambda found: "\\ufffd" if found[2] else found[0], text)
    return text.translate(_CONTROLS)


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
        if kind == "end" or depth > _MAX_DEPTH:
            raise BrokenJSON
        builder.event(kind, value)
        depth += (kind in ("start_array", "start_map")) - (kind in ("end_array", "end_map"))
    return builder.value


def shape(files: Files, name: str) -> set[str]:
    """The paths of keys at the beginning of a JSON file, three levels deep, without the outer array: `chat.history`."""
    if (known := files.shapes.get(name)) is not None:
        return known
    with files.look(name) as stream:
        beginning = stream.read(_PREFIX)
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
            elif kind == "map_key" and len(here) <= _SHAPE_DEPTH:
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
    """Files whose beginning has all keys of one of the sets; also damaged ones, if there are others."""
    found, damaged = [], []
    error = None
    for name in json_names(files, at_most):
        try:
            keys = shape(files, name)
        except UnreadableExport as each:
            error = error or each
            damaged.append(name)
            continue
        if any(each <= keys for each in requested):
            found.append(name)
    if error and not found:
        raise error
    return [*found, *damaged]


def records(files: Files, name: str) -> Iterator[tuple[str, Any]]:
    """Each element of a file with its place; after the last one `BrokenJSON` if the file ends early or is damaged."""
    try:
        with files.open(name) as stream:
            for index, value in enumerate(elements(stream)):
                yield f"{name}[{index}]", value
    except UnreadableExport as error:
        raise BrokenJSON(sentence_of(error)) from error


def parts(files: Files, name: str) -> Iterator[tuple[str, Any]]:
    """The same of each element of each list in a file of one object, which may have all conversations."""
    try:
        with files.open(name) as stream:
            for index, (part, value) in enumerate(members(stream)):
                yield f"{name}:{part}[{index}]", value
    except UnreadableExport as error:
        raise BrokenJSON(sentence_of(error)) from error


# --- Reads JSON Lines logs of terminal agents: one line in memory at a time, with a length limit ---

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
        yield 0, Skipped(where=name, reason=sentence_of(error))


def first_lines(files: Files, name: str, at_most: int = 10) -> list[dict[str, Any]]:
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
    file = ZstdFile(stream, options={DecompressionParameter.window_log_max: _WINDOW_LOG})
    try:
        while data := file.read(_CHUNK):
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


def _parsed(raw: bytes) -> dict[str, Any] | str | None:
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


def titles_by_id(files: Files, name: str, key: str, title: str) -> dict[str, str]:
    """An index of sessions, one per line: the last entry of an id counts."""
    found = {}
    for _number, line in json_lines(files, name):
        if isinstance(line, dict) and (text := line_of(line.get(title))):
            found[id_of(line.get(key))] = text
    return found


# --- Values of unknown form, read or refused: the expected text, list or object, or an empty one ---


def text_of(value: Any) -> str:
    """A text that can be stored; empty for any other type."""
    return pg_text(value) if isinstance(value, str) else ""


def line_of(value: Any) -> str:
    """A title or name: one line."""
    return " ".join(text_of(value).split())


def id_of(value: Any) -> str:
    """An id; numbers become texts, all other types an empty one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**30:
        return str(value)
    return text_of(value).strip()


def list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def object_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def objects_of(value: Any) -> list[dict[str, Any]]:
    return [each for each in list_of(value) if isinstance(each, dict)]


def name_of_block(block: dict[str, Any]) -> str:
    """What a message calls the file of a block: its name, or else its kind."""
    return line_of(block.get("title")) or line_of(block.get("filename")) or line_of(block.get("type"))


def joined(texts: Iterable[str]) -> str:
    """The texts as paragraphs, without empty ones."""
    return "\n\n".join(text for text in texts if text.strip()).strip()


def compact(value: Any, at_most: int = 4000) -> str:
    """A value as short JSON for a folded tool call; deeply nested parts are left out."""
    try:
        return pg_text(json.dumps(value, ensure_ascii=False, default=str))[:at_most]
    except (RecursionError, ValueError):
        return ""


def stable_id(*parts: object) -> str:
    """The same id for the same content, if the export has none."""
    return hashlib.sha256("\0".join(map(str, parts)).encode(errors="replace")).hexdigest()[:32]


# --- Parses the times of exports: seconds, milliseconds or microseconds, ISO texts, numbers in texts; rejects nonsense

# None of these products is older.
_EARLIEST = datetime(2015, 1, 1, tzinfo=UTC)
_TOLERANCE = timedelta(days=1)
_NUMBER = re.compile(r"\s*[+-]?\d{1,25}(\.\d{1,25})?\s*\Z")
_LONGEST_TEXT = 64
_MILLISECONDS = 10**11
_MICROSECONDS = 10**14


def parse_time(value: Any, *, now: datetime | None = None) -> datetime | None:
    """An aware time in UTC; None for what is no time, before 2015, or more than a day ahead. No zone means UTC."""
    match value:
        case bool():
            return None
        case str():
            time = _from_text(value)
        case int() | float() | Decimal():
            time = _from_number(value)
        case _:
            return None
    if time is None or not _EARLIEST <= time <= (now or datetime.now(UTC)) + _TOLERANCE:
        return None
    return time


def _from_text(text: str) -> datetime | None:
    if len(text) > _LONGEST_TEXT:
        return None
    if _NUMBER.match(text):
        return _from_number(float(text))
    try:
        time = datetime.fromisoformat(text.strip().removesuffix(" UTC"))
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def _from_number(number: int | float | Decimal) -> datetime | None:
    try:
        seconds = float(number)
    except (OverflowError, ValueError):
        return None
    if not math.isfinite(seconds):
        return None
    if abs(seconds) >= _MICROSECONDS:
        seconds /= 1_000_000
    elif abs(seconds) >= _MILLISECONDS:
        seconds /= 1_000
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
