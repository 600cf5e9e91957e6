"""Reads the files that are zips of XML: DOCX, XLSX, PPTX, OpenDocument and EPUB.

By the XML itself and not by a library for each: no tree is built, and text in frames, in tracked insertions, in
footnotes and in notes is read as well.
"""

import posixpath
from collections.abc import Iterator
from itertools import chain
from urllib.parse import unquote

from intake.attachments.reading.documents import document, open_document, slides
from intake.attachments.reading.html_text import html_to_text
from intake.attachments.reading.package import START, Package
from intake.attachments.reading.parts import (
    ENCRYPTED,
    NO_TEXT,
    UNKNOWN,
    Part,
    Reading,
    Unreadable,
    reading_of,
    sections_of,
)
from intake.attachments.reading.sheets import sheets


def read_package(data: bytes) -> Reading:
    """Raises `Unreadable` for a zip that is none of these documents."""
    package = Package(data)
    if "META-INF/container.xml" in package:
        reading = reading_of(_chapters(package), size=len(data))
    elif package.whole("mimetype").startswith(b"application/vnd.oasis.opendocument."):
        if b"encryption-data" in package.whole("META-INF/manifest.xml"):
            raise Unreadable(ENCRYPTED)
        reading = reading_of(open_document(package), size=len(data))
    else:
        kinds = (path for kind, path in package.relations("").values() if kind == "officeDocument")
        main = next(kinds, "")
        reader = {"word": document, "ppt": slides, "xl": sheets}.get(main.split("/")[0])
        if reader is None or main not in package:
            raise Unreadable(UNKNOWN["archive"])
        reading = reading_of(reader(package, main), size=len(data))
    if not reading.parts:
        raise Unreadable(NO_TEXT)
    return reading


def _chapters(package: Package) -> Iterator[Part]:
    """The chapters of an EPUB in the order of the book."""
    book = next(
        (
            attributes.get("full-path", "")
            for kind, tag, attributes in package.events("META-INF/container.xml")
            if kind == START and tag == "rootfile"
        ),
        "",
    )
    members: dict[str, str] = {}
    order: list[str] = []
    for kind, tag, attributes in package.events(book):
        if kind == START and tag == "item":
            path = posixpath.join(posixpath.dirname(book), unquote(attributes.get("href", "")))
            members[attributes.get("id", "")] = posixpath.normpath(path)
        elif kind == START and tag == "itemref":
            order.append(attributes.get("idref", ""))
    chapters = (members[each] for each in dict.fromkeys(order) if each in members)
    texts = (html_to_text(package.whole(path).decode(errors="replace")) for path in chapters)
    return chain.from_iterable(
        (part if part.place else part._replace(place=f"chapter {number}") for part in sections_of(text))
        for number, text in enumerate(texts, start=1)
    )
