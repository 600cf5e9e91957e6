"""The members of a zip of XML: unpacked a little at a time and counted, without a tree."""

import posixpath
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from io import BytesIO
from typing import Any
from xml.parsers import expat

from intake.attachments.reading.parts import DAMAGED, ENCRYPTED, TOO_LARGE, Unreadable

START, END, TEXT = range(3)
Event = tuple[int, str, Any]
"""`START` with the attributes, `END`, or `TEXT` with the characters. Names are without their namespaces."""
Events = Iterator[Event]


class Package:
    """The members of a zip, which count what is unpacked."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OverflowError) as error:
            raise Unreadable(DAMAGED) from error
        self._members = {member.filename: member for member in self._zip.infolist()}
        # All that is unpacked of one file, and of one member that is held as a whole.
        self._left = 200 * 1024 * 1024
        if len(self._members) > 20_000:
            raise Unreadable(TOO_LARGE)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._members))

    def chunks(self, name: str) -> Iterator[bytes]:
        """The unpacked bytes of a member; none of a member that is not there."""
        member = self._members.get(name)
        if member is None:
            return
        if member.file_size > self._left:
            raise Unreadable(TOO_LARGE)
        if member.flag_bits & 1:
            raise Unreadable(ENCRYPTED)
        try:
            with self._zip.open(member) as stream:
                while chunk := stream.read(64 * 1024):
                    self._left -= len(chunk)
                    if self._left < 0:
                        raise Unreadable(TOO_LARGE)
                    yield chunk
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise Unreadable(DAMAGED) from error

    def whole(self, name: str) -> bytes:
        member = self._members.get(name)
        if member is not None and member.file_size > 20 * 1024 * 1024:
            raise Unreadable(TOO_LARGE)
        return b"".join(self.chunks(name))

    def events(self, name: str) -> Events:
        """The XML of a member, of which no more than a chunk is held."""
        parser = expat.ParserCreate(namespace_separator="}")
        parser.buffer_text = True
        events: list[Event] = []
        parser.StartElementHandler = lambda tag, attributes: events.append((START, _local(tag), attributes))
        parser.EndElementHandler = lambda tag: events.append((END, _local(tag), None))
        parser.CharacterDataHandler = lambda text: events.append((TEXT, "", text))
        # No such file defines entities; one that does is made to grow.
        parser.EntityDeclHandler = _refuse
        try:
            for chunk in self.chunks(name):
                parser.Parse(chunk, False)
                yield from events
                events.clear()
        except expat.ExpatError as error:
            raise Unreadable(DAMAGED) from error

    def relations(self, name: str) -> dict[str, tuple[str, str]]:
        """By their ids, what a member refers to: the kind, and the name of the member."""
        folder, base = posixpath.split(name)
        found = {}
        for kind, tag, attributes in self.events(posixpath.join(folder, "_rels", f"{base}.rels")):
            if kind == START and tag == "Relationship":
                target = attributes.get("Target", "")
                path = target.lstrip("/") if target.startswith("/") else posixpath.join(folder, target)
                found[attributes.get("Id", "")] = (
                    attributes.get("Type", "").rpartition("/")[2],
                    posixpath.normpath(path),
                )
        return found


def _refuse(*_: Any) -> None:
    raise Unreadable(DAMAGED)


@cache
def _local(name: str) -> str:
    return name.rpartition("}")[2]


def attribute(attributes: Mapping[str, str], name: str) -> str:
    """An attribute by its name, in any namespace."""
    return next((value for key, value in attributes.items() if _local(key) == name), "")


def relation_id(attributes: Mapping[str, str]) -> str:
    """The attribute `r:id`, not the plain `id`."""
    return next((value for name, value in attributes.items() if name.endswith("}id")), "")
