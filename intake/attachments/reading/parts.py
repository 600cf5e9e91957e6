"""The text of a file in parts: a few thousand characters each, with the place where a reader finds them in the file."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from core.text import Sentence, Value, cut_point, pg_text, shortened
from core.text import gettext_noop as _

# A part is a page of a book: its passages have one place, and a model reads some of them at a time.
LONGEST_PART = 4_000
# The text of one file: some five books. What is beyond it is not read, and the file says so.
MOST_TEXT = 5_000_000
# Empty cells before a cell, for a sheet whose cells are far apart.
MOST_GAP = 100
JOINT = " > "

DAMAGED = _("The file is damaged, or it is not what its name says.")
ENCRYPTED = _("The file is protected by a password.")
TOO_LARGE = _("The file is larger unpacked than this server reads.")
NO_TEXT = _("The file has no text.")
# By the family of the file's type; any other kind is the last.
UNKNOWN = {
    "video": _("Videos are kept, but cannot be read."),
    "audio": _("Recordings are kept, but cannot be read."),
    "archive": _("Archives are kept, but cannot be read: add the files in them."),
    "": _("Files of this kind are kept, but cannot be read."),
}
MEMORY = _("The file takes more memory than this server gives to a file.")
FAILED = _("The file could not be read.")

_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"[ ]{0,3}(#{1,6})[ \t]+(.*)")
_SPACES = re.compile(r"\s+")


class Unreadable(Exception):
    """The file has no text that can be read; `sentence` says why. `peak_kb`: the memory that it took, or 0."""

    def __init__(self, message: str, *, peak_kb: int = 0, **values: Value) -> None:
        self.sentence = Sentence(message, **values)
        self.peak_kb = peak_kb
        super().__init__(self.sentence)


class Part(NamedTuple):
    """`place`: such as "page 3", "sheet Prices, rows 1-40", or a heading after those that it is under."""

    place: str
    text: str


@dataclass(frozen=True, slots=True)
class Reading:
    """The parts in the order of the file. `is_cut`: the file goes on after them. `peak_kb`: the memory that it took.

    `notes`: what its reader should know of the text, such as a guessed encoding. `pictures`: of a picture, its
    thumbnail and itself in the size that models read.
    """

    parts: Sequence[Part]
    pages: int | None = None
    is_cut: bool = False
    notes: Sequence[Sentence] = ()
    peak_kb: int = 0
    pictures: Sequence[bytes] = ()


def reading_of(
    parts: Iterable[Part], *, pages: int | None = None, size: int | None = None, notes: Sequence[Sentence] = ()
) -> Reading:
    """As much as is read of a file of so many bytes. Takes no part from the iterator after that."""
    taken: list[Part] = []
    # A file that is packed may hold twenty times its bytes, and a small one so much.
    left = MOST_TEXT if size is None else min(MOST_TEXT, max(200_000, 20 * size))
    for place, text in parts:
        for piece in pieces(pg_text(text)):
            if len(piece) > left:
                return Reading(taken, pages, is_cut=True, notes=notes)
            left -= len(piece)
            taken.append(Part(shortened(_one_line(pg_text(place)), 200), piece))
    return Reading(taken, pages, notes=notes)


def _one_line(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


def pieces(text: str) -> Iterator[str]:
    """The text in pieces of at most `LONGEST_PART`, cut after a paragraph, a line, a sentence or a word."""
    return (piece.strip("\n") for piece in _with_line_ends(text) if piece.strip())


def _place_to_cut(text: str, start: int) -> int:
    for mark in ("\n\n", "\n", ". ", " "):
        found = text.rfind(mark, start + LONGEST_PART // 2, start + LONGEST_PART)
        if found >= 0:
            return found + len(mark)
    return start + (cut_point(text[start : start + LONGEST_PART + 1], LONGEST_PART) or LONGEST_PART)


def lines_of(text: str) -> Iterator[Part]:
    """A text without headings, such as a program: the places are its lines."""
    text = text.expandtabs(4) if "\t" in text else text
    line = 1
    every = list(_with_line_ends(text))
    for piece in every:
        last = line + piece.rstrip("\n").count("\n")
        place = f"lines {line}-{last}" if last > line else f"line {line}"
        yield Part("" if len(every) == 1 else place, piece)
        line += piece.count("\n")


def _with_line_ends(text: str) -> Iterator[str]:
    """As `pieces`, with nothing left out, so that lines can be counted."""
    start = 0
    while start < len(text):
        end = len(text) if len(text) - start <= LONGEST_PART else _place_to_cut(text, start)
        yield text[start:end]
        start = end


def sections_of(markdown: str, *, above: str = "") -> Iterator[Part]:
    """A text in Markdown by its headings; `above`: the place of all of it, such as a chapter."""
    headings: list[tuple[int, str]] = []
    lines: list[str] = []
    fence = ""
    for line in markdown.split("\n"):
        if mark := _FENCE.match(line):
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        found = None if fence or mark else _HEADING.match(line)
        if found is not None:
            yield from _section(above, headings, lines)
            level, lines = len(found[1]), []
            headings = [each for each in headings if each[0] < level]
            headings.append((level, _one_line(found[2].rstrip("# "))))
        lines.append(line)
    yield from _section(above, headings, lines)


def _section(above: str, headings: list[tuple[int, str]], lines: list[str]) -> Iterator[Part]:
    text = "\n".join(lines).strip("\n")
    names = [heading for _, heading in headings if heading]
    # A heading alone is in the place of what is under it.
    if text.strip() and not (len(lines) and _HEADING.fullmatch(text)):
        yield Part(JOINT.join(name for name in [above, *names[-3:]] if name), text)


def table_of(rows: Iterable[tuple[int, Sequence[str]]], *, above: str = "") -> Iterator[Part]:
    """A table in groups of rows, each in Markdown under the header of the first row.

    `rows`: the number of each row in the file, and its cells.
    """
    rows = iter(rows)
    first = next(((number, cells) for number, cells in rows if any(cells)), None)
    if first is None:
        return
    number, cells = first
    header = _row(cells)
    rule = "|" + " --- |" * len(cells)
    # A header that is longer is not repeated above every group of rows.
    head = [header, rule] if len(header) <= 1_000 else []
    group, size, began = (head.copy() or [header]), len(header), number
    last = number
    for number, cells in rows:
        if not any(cells):
            continue
        line = _row(cells)
        if size + len(line) + 1 > LONGEST_PART - len(rule) and len(group) > len(head):
            yield Part(_rows(above, began, last), "\n".join(group))
            group, size, began = head.copy(), len(header) if head else 0, number
        group.append(line)
        size += len(line) + 1
        last = number
    yield Part(_rows(above, began, last), "\n".join(group))


def _rows(above: str, first: int, last: int) -> str:
    rows = f"rows {first}-{last}" if last > first else f"row {first}"
    return f"{above}, {rows}" if above else rows


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_one_line(cell).replace("|", "\\|") for cell in cells) + " |"
