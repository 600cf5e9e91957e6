"""DOCX and PPTX as Markdown: the places of a document are its headings, and those of a talk its slides."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from intake.attachments.reading.package import START, TEXT, Events, Package, attribute, relation_id
from intake.attachments.reading.parts import Part, sections_of, table_of

_HEADING_STYLE = re.compile(r"heading (\d)")
# A frame is there twice, for new readers and for old ones; and moved text at its old place too.
_SKIPPED = {"Fallback", "moveFrom"}
_WHITE = {"tab": "\t", "br": "\n", "cr": "\n"}
_NOTES = (("footnotes", "Footnotes"), ("endnotes", "Endnotes"), ("comments", "Comments"))


def document(package: Package, main: str) -> Iterator[Part]:
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
            style = attribute(attributes, "styleId")
        elif tag == "name":
            named = attribute(attributes, "val").lower()
            if found := _HEADING_STYLE.fullmatch(named):
                levels[style] = int(found[1])
            elif named == "title":
                levels[style] = 1
        elif tag == "outlineLvl" and style not in levels and attribute(attributes, "val").isdecimal():
            levels[style] = int(attribute(attributes, "val")) + 1
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
            place, value = (1, attribute(attributes, "val")) if tag == "pStyle" else (2, True)
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
            text = "#" * min(level, 6) + " " + " ".join(text.split())
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


def slides(package: Package, main: str) -> Iterator[Part]:
    related = package.relations(main)
    ids = [relation_id(each) for kind, tag, each in package.events(main) if kind == START and tag == "sldId"]
    for number, relation in enumerate(ids, start=1):
        slide = related.get(relation, ("", ""))[1]
        notes = [path for kind, path in package.relations(slide).values() if kind == "notesSlide"]
        text = _markdown(package.events(slide), {})
        spoken = "\n\n".join(filter(None, (_markdown(package.events(path), {}) for path in notes)))
        yield Part(f"slide {number}", f"{text}\n\nNotes:\n\n{spoken}" if spoken else text)
