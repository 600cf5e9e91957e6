"""Reads the files that are zips of XML: DOCX, XLSX, PPTX and EPUB.

By the XML itself and not by a library for each: a member is unpacked a little at a time and counted, no tree is built,
and text in frames, in tracked insertions, in footnotes and in notes is read as well.
"""

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from io import BytesIO
from itertools import chain
from typing import Any
from urllib.parse import unquote
from xml.parsers import expat

from intake.attachments.reading.html_text import html_to_text
from intake.attachments.reading.parts import (
    DAMAGED,
    ENCRYPTED,
    MOST_GAP,
    NO_TEXT,
    TOO_LARGE,
    UNKNOWN,
    Part,
    Reading,
    Unreadable,
    reading_of,
    sections_of,
    table_of,
)

# All that is unpacked of one file, and of one member that is held as a whole.
MOST_UNPACKED = 200 * 1024 * 1024
MOST_OF_A_MEMBER = 20 * 1024 * 1024
MOST_MEMBERS = 20_000
CHUNK = 64 * 1024

START, END, TEXT = range(3)
Event = tuple[int, str, Any]
"""`START` with the attributes, `END`, or `TEXT` with the characters. Names are without their namespaces."""
Events = Iterator[Event]

_ENCRYPTED_FLAG = 1


class Package:
    """The members of a zip, which count what is unpacked."""

    def __init__(self, data: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OverflowError) as error:
            raise Unreadable(DAMAGED) from error
        self._members = {member.filename: member for member in self._zip.infolist()}
        self._left = MOST_UNPACKED
        if len(self._members) > MOST_MEMBERS:
            raise Unreadable(TOO_LARGE)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def chunks(self, name: str) -> Iterator[bytes]:
        """Of a member that is not there: nothing."""
        member = self._members.get(name)
        if member is None:
            return
        if member.file_size > self._left:
            raise Unreadable(TOO_LARGE)
        if member.flag_bits & _ENCRYPTED_FLAG:
            raise Unreadable(ENCRYPTED)
        try:
            with self._zip.open(member) as stream:
                while chunk := stream.read(CHUNK):
                    self._left -= len(chunk)
                    if self._left < 0:
                        raise Unreadable(TOO_LARGE)
                    yield chunk
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError) as error:
            raise Unreadable(DAMAGED) from error

    def whole(self, name: str) -> bytes:
        member = self._members.get(name)
        if member is not None and member.file_size > MOST_OF_A_MEMBER:
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

    def main(self) -> str:
        """The member with which an office document begins; empty if there is none."""
        return next((path for kind, path in self.relations("").values() if kind == "officeDocument"), "")


def _refuse(*_: Any) -> None:
    raise Unreadable(DAMAGED)


@cache
def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _value(attributes: Mapping[str, str], name: str) -> str:
    """An attribute by its name, in any namespace."""
    return next((value for key, value in attributes.items() if _local(key) == name), "")


def read_package(data: bytes) -> Reading:
    """Raises `Unreadable` for a zip that is none of these documents."""
    package = Package(data)
    if "META-INF/container.xml" in package:
        return _not_empty(reading_of(_chapters(package), size=len(data)))
    main = package.main()
    reader = READERS.get(main.split("/")[0])
    if reader is None or main not in package:
        raise Unreadable(UNKNOWN)
    return _not_empty(reading_of(reader(package, main), size=len(data)))


def _not_empty(reading: Reading) -> Reading:
    if not reading.parts:
        raise Unreadable(NO_TEXT)
    return reading


# --- DOCX: becomes Markdown, whose headings are the places ---

_HEADING_STYLE = re.compile(r"heading (\d)")
_DEEPEST_HEADING = 6
# A frame is there twice, for new readers and for old ones; and moved text at its old place too.
_SKIPPED = {"Fallback", "moveFrom"}
_WHITE = {"tab": "\t", "br": "\n", "cr": "\n"}
_NOTES = (("footnotes", "Footnotes"), ("endnotes", "Endnotes"), ("comments", "Comments"))


def _document(package: Package, main: str) -> Iterator[Part]:
    folder = posixpath.dirname(main)
    levels = _heading_levels(package, posixpath.join(folder, "styles.xml"))
    yield from sections_of(_markdown(package.events(main), levels))
    for member, title in _NOTES:
        if text := _markdown(package.events(posixpath.join(folder, f"{member}.xml")), {}):
            yield from sections_of(text, above=title)


def _heading_levels(package: Package, name: str) -> dict[str, int]:
    """The styles that are headings, also where they have names in another language."""
    levels: dict[str, int] = {}
    style = ""
    for kind, tag, attributes in package.events(name):
        if kind != START:
            continue
        if tag == "style":
            style = _value(attributes, "styleId")
        elif tag == "name":
            named = _value(attributes, "val").lower()
            if found := _HEADING_STYLE.fullmatch(named):
                levels[style] = int(found[1])
            elif named == "title":
                levels[style] = 1
        elif tag == "outlineLvl" and style not in levels and _value(attributes, "val").isdecimal():
            levels[style] = int(_value(attributes, "val")) + 1
    return levels


class _Writer:
    """Writes the paragraphs and tables of a document, also those in frames, which are within a paragraph."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        self._levels = levels
        self.blocks: list[str] = []
        # Paragraphs that have begun, each with its text, its style and whether it is an item of a list.
        self._paragraphs: list[list[Any]] = []
        self._tables: list[list[list[list[str]]]] = []
        self._is_text = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if tag == "t":
            self._is_text = True
        elif tag == "p":
            self._paragraphs.append([[], "", False])
        elif tag in ("pStyle", "numPr") and self._paragraphs:
            place, value = (1, _value(attributes, "val")) if tag == "pStyle" else (2, True)
            self._paragraphs[-1][place] = value
        elif tag in _WHITE:
            self.text(_WHITE[tag], is_forced=True)
        else:
            self._start_of_table(tag)

    def _start_of_table(self, tag: str) -> None:
        if tag == "tbl":
            self._tables.append([])
        elif tag == "tr" and self._tables:
            self._tables[-1].append([])
        elif tag == "tc" and self._tables and self._tables[-1]:
            self._tables[-1][-1].append([])

    def text(self, text: str, *, is_forced: bool = False) -> None:
        if (self._is_text or is_forced) and self._paragraphs:
            self._paragraphs[-1][0].append(text)

    def end(self, tag: str) -> None:
        if tag == "t":
            self._is_text = False
        elif tag == "p" and self._paragraphs:
            self._end_paragraph(*self._paragraphs.pop())
        elif tag == "tbl" and self._tables:
            table = self._tables.pop()
            rows = [[" ".join(cell) for cell in row] for row in table]
            if self._tables:
                self._put(" ".join(cell for row in rows for cell in row if cell))
            else:
                self.blocks += [part.text for part in table_of(enumerate(rows, start=1))]

    def _end_paragraph(self, texts: list[str], style: str, is_item: bool) -> None:
        text = "".join(texts).strip()
        if not text:
            return
        if level := self._levels.get(style, 0):
            text = "#" * min(level, _DEEPEST_HEADING) + " " + " ".join(text.split())
        elif is_item:
            text = f"- {text}"
        self._put(text)

    def _put(self, text: str) -> None:
        cell = self._tables[-1][-1][-1] if self._tables and self._tables[-1] and self._tables[-1][-1] else None
        (self.blocks if cell is None else cell).append(text)


def _markdown(events: Events, levels: Mapping[str, int]) -> str:
    writer = _Writer(levels)
    skipped = 0
    for kind, tag, value in events:
        if tag in _SKIPPED:
            skipped += 1 if kind == START else -1
        elif skipped:
            continue
        elif kind == TEXT:
            writer.text(value)
        elif kind == START:
            writer.start(tag, value)
        else:
            writer.end(tag)
    return "\n\n".join(writer.blocks)


# --- PPTX: a slide is a place, with its notes ---


def _slides(package: Package, main: str) -> Iterator[Part]:
    related = package.relations(main)
    ids = [_relation_id(each) for kind, tag, each in package.events(main) if kind == START and tag == "sldId"]
    for number, relation in enumerate(ids, start=1):
        slide = related.get(relation, ("", ""))[1]
        notes = [path for kind, path in package.relations(slide).values() if kind == "notesSlide"]
        text = _markdown(package.events(slide), {})
        spoken = "\n\n".join(filter(None, (_markdown(package.events(path), {}) for path in notes)))
        yield Part(f"slide {number}", f"{text}\n\nNotes:\n\n{spoken}" if spoken else text)


def _relation_id(attributes: Mapping[str, str]) -> str:
    """The id of the relation, beside which there is another one without a namespace."""
    return next((value for name, value in attributes.items() if name.endswith("}id")), "")


# --- XLSX: a sheet is a table, in groups of rows ---

# The built-in formats of days and times. Others are told by their letters, outside quotation marks and brackets.
_DAY_FORMATS = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}
_NOT_LETTERS = re.compile(r'"[^"]{0,200}"|\\.|\[(?![hms]\]|[hms]{2}\])[^\[\]]{0,100}\]')
_DAY_LETTERS = re.compile(r"[dmyhs]", re.IGNORECASE)
_DAY_ZERO, _DAY_ZERO_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)  # noqa: DTZ001 - a sheet has no time zone
_LAST_DAY = 2_958_466
_REFERENCE = re.compile(r"([A-Z]{1,3})(\d{1,7})")


def _sheets(package: Package, main: str) -> Iterator[Part]:
    folder = posixpath.dirname(main)
    related = package.relations(main)
    sheets, day_zero = [], _DAY_ZERO
    for kind, tag, attributes in package.events(main):
        if kind == START and tag == "sheet":
            sheets.append((_value(attributes, "name"), _relation_id(attributes)))
        elif kind == START and tag == "workbookPr" and attributes.get("date1904") in ("1", "true"):
            day_zero = _DAY_ZERO_1904
    strings = _shared_strings(package, posixpath.join(folder, "sharedStrings.xml"))
    is_day = _day_styles(package, posixpath.join(folder, "styles.xml"))
    for name, relation in sheets:
        rows = _rows(package.events(related.get(relation, ("", ""))[1]), strings, is_day, day_zero)
        yield from table_of(rows, above=f"sheet {name}")


def _shared_strings(package: Package, name: str) -> list[str]:
    strings: list[str] = []
    texts: list[str] = []
    is_text, is_reading_aid = False, False
    for kind, tag, value in package.events(name):
        if kind == TEXT:
            if is_text and not is_reading_aid:
                texts.append(value)
        elif tag == "t":
            is_text = kind == START
        elif tag == "rPh":
            is_reading_aid = kind == START
        elif tag == "si" and kind == END:
            strings.append("".join(texts))
            texts = []
    return strings


def _day_styles(package: Package, name: str) -> list[bool]:
    """For each style of cells, whether a number in it is a day or a time."""
    formats: dict[str, str] = {}
    styles: list[bool] = []
    is_inside = False
    for kind, tag, attributes in package.events(name):
        if tag == "cellXfs":
            is_inside = kind == START
        elif kind == START and tag == "numFmt":
            formats[attributes.get("numFmtId", "")] = attributes.get("formatCode", "")
        elif kind == START and tag == "xf" and is_inside:
            number = attributes.get("numFmtId", "0")
            letters = _NOT_LETTERS.sub("", formats.get(number, ""))
            is_built_in = number.isdecimal() and int(number) in _DAY_FORMATS
            styles.append(bool(_DAY_LETTERS.search(letters)) if number in formats else is_built_in)
    return styles


def _rows(
    events: Events, strings: Sequence[str], is_day: Sequence[bool], day_zero: datetime
) -> Iterator[tuple[int, list[str]]]:
    row: list[str] = []
    number = 0
    for kind, tag, value in events:
        if tag == "row" and kind == START:
            row = []
            number = int(value["r"]) if value.get("r", "").isdecimal() else number + 1
        elif tag == "row" and row:
            yield number, row
        elif tag == "c" and kind == START and (text := _text_of_cell(events)):
            _put(row, value.get("r", ""), _cell(text, value, strings, is_day, day_zero))


def _text_of_cell(events: Events) -> str:
    """Of a cell that has begun, up to its end; without its formula."""
    texts: list[str] = []
    is_value = False
    for kind, tag, value in events:
        if kind == TEXT:
            if is_value:
                texts.append(value)
        elif tag in ("v", "t"):
            is_value = kind == START
        elif tag == "c":
            break
    return "".join(texts)


def _put(row: list[str], reference: str, text: str) -> None:
    """At its column, after empty cells; not far behind the others, however far it is."""
    if (found := _REFERENCE.fullmatch(reference)) is not None:
        column = 0
        for letter in found[1]:
            column = 26 * column + ord(letter) - ord("A") + 1
        row.extend([""] * min(MOST_GAP, column - 1 - len(row)))
    row.append(text)


def _cell(
    text: str, cell: Mapping[str, str], strings: Sequence[str], is_day: Sequence[bool], day_zero: datetime
) -> str:
    match cell.get("t", "n"):
        case "s":
            return strings[int(text)] if text.isdecimal() and int(text) < len(strings) else ""
        case "b":
            return "TRUE" if text == "1" else "FALSE"
        case "n":
            style = cell.get("s", "0")
            is_of_day = style.isdecimal() and int(style) < len(is_day) and is_day[int(style)]
            return _number(text, day_zero if is_of_day else None)
    return text


def _number(text: str, day_zero: datetime | None) -> str:
    try:
        number = float(text)
    except ValueError:
        return text
    if day_zero is None or not 0 <= number < _LAST_DAY:
        return f"{number:.15g}"
    at = day_zero + timedelta(seconds=round(number * 86_400))
    if number < 1:
        return f"{at:%H:%M:%S}"
    return f"{at:%Y-%m-%d}" if at.time() == datetime.min.time() else f"{at:%Y-%m-%d %H:%M:%S}"


READERS: Mapping[str, Callable[[Package, str], Iterator[Part]]] = {
    "word": _document,
    "ppt": _slides,
    "xl": _sheets,
}
"""By the folder of the member with which a document begins."""


# --- EPUB: its chapters in the order of the book ---


def _chapters(package: Package) -> Iterator[Part]:
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
