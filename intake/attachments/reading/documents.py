"""DOCX, PPTX and OpenDocument as Markdown: the places of a document are its headings, those of a talk its slides."""

# ruff: noqa: RUF001 - signs of other scripts are the subject
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from intake.attachments.reading.package import START, TEXT, Events, Package, attribute, relation_id
from intake.attachments.reading.parts import MOST_GAP, Part, sections_of, table_of

_HEADING_STYLE = re.compile(r"heading (\d)")
# A frame is there twice, for new readers and for old ones; moved text at its old place too; and how signs are read
# aloud stands above them.
_SKIPPED = {"Fallback", "moveFrom", "rt"}
_SIGNS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_NOTES = (
    ("header", "Headers"),
    ("footer", "Footers"),
    ("footnotes", "Footnotes"),
    ("endnotes", "Endnotes"),
    ("comments", "Comments"),
)
# The signs of two fonts that have places of their own for them, by their codes, the first from 0x20 on.
_SYMBOL = (
    " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
    ".................................€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑"
)
_WINGDINGS = dict(zip(b"JLlno\xa7\xa8\xdf\xe0\xfb\xfc\xfd\xfe", "☺☹●■☐▪☐←→✗✓☒☑", strict=True))


def document(package: Package, main: str) -> Iterator[Part]:
    folder = posixpath.dirname(main)
    levels = _heading_levels(package, posixpath.join(folder, "styles.xml"))
    yield from sections_of(_markdown(package.events(main), levels))
    for kind, title in _NOTES:
        beginning = posixpath.join(folder, kind)
        names = (name for name in package if re.fullmatch(r"\d{0,9}\.xml", name.removeprefix(beginning)))
        texts = (_markdown(package.events(name), {}) for name in names)
        # The first page, left and right pages and each section have headers of their own, often the same.
        for text in dict.fromkeys(filter(None, texts)):
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
        elif tag in _SIGNS:
            self.text(_SIGNS[tag], is_forced=True)
        elif tag == "sym" and (code := attribute(attributes, "char")):
            self.text(_sign_of_font(attribute(attributes, "font"), code), is_forced=True)
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

    def row(self) -> list[list[str]]:
        """The cells of the row that is being written."""
        return self._tables[-1][-1] if self._tables and self._tables[-1] else []

    def _put(self, text: str) -> None:
        row = self.row()
        (row[-1] if row else self.blocks).append(text)


def _sign_of_font(font: str, code: str) -> str:
    """Fonts of signs have theirs in an area that Unicode leaves to them, from 0xF000 on."""
    try:
        number = int(code, 16)
    except ValueError:
        return "\ufffd"
    place = number - 0xF000 if 0xF000 <= number <= 0xF0FF else number
    if font == "Symbol" and 0x20 <= place < 0x20 + len(_SYMBOL):
        return _SYMBOL[place - 0x20]
    if font.startswith("Wingdings"):
        return _WINGDINGS.get(place, "\ufffd")
    return chr(number) if 0x20 <= number < 0xD800 or 0xF900 <= number < 0xFFFE else "\ufffd"


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


# OpenDocument's names for what the writer knows by Word's.
_SAME = {"p": "p", "h": "p", "table": "tbl", "table-row": "tr", "table-cell": "tc", "covered-table-cell": "tc"}
_NO_TEXT = {"tracked-changes", "ruby-text", "note-citation", "creator", "date", "date-string", "title", "desc"}
_WHITE = {"tab": "\t", "line-break": "\n", "s": " "}


def open_document(package: Package) -> Iterator[Part]:
    """A text, a table or a talk of OpenDocument. Headers and footers stand among its styles."""
    yield from sections_of(_of_open_document(package.events("content.xml"), "body"))
    for kind, title in _NOTES[:2]:
        yield from sections_of(_of_open_document(package.events("styles.xml"), kind), above=title)


def _of_open_document(events: Events, within: str) -> str:
    """The Markdown of what stands in elements of this name, once if it stands in several."""
    writer = _Writer({str(level): level for level in range(1, 7)})
    skipped = inside = again = 0
    is_sheet = is_item = False
    for kind, tag, value in events:
        if kind != TEXT and tag in (_NO_TEXT | {within}):
            step = 1 if kind == START else -1
            skipped, inside = (skipped, inside + step) if tag == within else (skipped + step, inside)
        if skipped or not inside:
            continue
        if kind == TEXT:
            writer.text(value, is_forced=True)
        elif tag in _WHITE and kind == START:
            writer.text(_WHITE[tag] * _number(value, "c"), is_forced=True)
        elif tag in _SAME and kind == START:
            if tag == "table" and is_sheet:
                writer.blocks.append(f"# {attribute(value, 'name')}")
            writer.start(_SAME[tag], value)
            if tag.endswith("cell"):
                again = _number(value, "number-columns-repeated")
            elif tag == "h":
                writer.start("pStyle", {"val": attribute(value, "outline-level")})
            elif tag == "p" and is_item:
                writer.start("numPr", value)
                is_item = False
        elif tag in _SAME:
            row = writer.row()
            if tag.endswith("cell") and row:
                row += row[-1:] * (again - 1)
                again = 1
            while tag == "table-row" and row and not row[-1]:
                row.pop()
            writer.end(_SAME[tag])
        elif kind == START:
            is_sheet, is_item = is_sheet or tag == "spreadsheet", is_item or tag == "list-item"
            if tag == "page":
                writer.blocks.append(f"# {attribute(value, 'name')}")
    return "\n\n".join(writer.blocks if within == "body" else dict.fromkeys(writer.blocks))


def _number(attributes: Mapping[str, str], name: str) -> int:
    number = attribute(attributes, name)
    return min(int(number), MOST_GAP) if number.isdecimal() else 1
