"""XLSX: a sheet is a table, in groups of rows.

A sheet is read as a stream: its last cell may stand a million rows below the others.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from intake.attachments.reading.package import END, START, TEXT, Events, Package, attribute, relation_id
from intake.attachments.reading.parts import MOST_GAP, Part, table_of

# The built-in formats of days and times. Others are told by their letters, outside quotation marks and brackets.
_DAY_FORMATS = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}
_NOT_LETTERS = re.compile(r'"[^"]{0,200}"|\\.|\[(?![hms]\]|[hms]{2}\])[^\[\]]{0,100}\]')
_DAY_LETTERS = re.compile(r"[dmyhs]", re.IGNORECASE)
_DAY_ZERO, _DAY_ZERO_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)  # noqa: DTZ001 - a sheet has no time zone
_REFERENCE = re.compile(r"([A-Z]{1,3})(\d{1,7})")


def sheets(package: Package, main: str) -> Iterator[Part]:
    folder = posixpath.dirname(main)
    related = package.relations(main)
    sheets, day_zero = [], _DAY_ZERO
    for kind, tag, attributes in package.events(main):
        if kind == START and tag == "sheet":
            sheets.append((attribute(attributes, "name"), relation_id(attributes)))
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
        elif tag == "c" and kind == START and (text := _text_of_cell(events, value, strings, is_day, day_zero)):
            _put(row, value.get("r", ""), text)


def _text_of_cell(
    events: Events, cell: Mapping[str, str], strings: Sequence[str], is_day: Sequence[bool], day_zero: datetime
) -> str:
    """The value of a cell that has begun, up to its end; or its formula, if no program has kept its value."""
    texts: dict[str, str] = {}
    inside = ""
    for kind, tag, value in events:
        if kind == TEXT:
            texts[inside] = texts.get(inside, "") + value
        elif tag in ("v", "t", "f"):
            inside = tag if kind == START else ""
        elif tag == "c":
            break
    if text := texts.get("v", "") + texts.get("t", ""):
        return _cell(text, cell, strings, is_day, day_zero)
    # An empty text is a value too.
    return f"={texts['f']}" if "f" in texts and cell.get("t") != "str" else ""


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
    # The day after 31 December 9999.
    if day_zero is None or not 0 <= number < 2_958_466:
        return f"{number:.15g}"
    at = day_zero + timedelta(seconds=round(number * 86_400))
    if number < 1:
        return f"{at:%H:%M:%S}"
    return f"{at:%Y-%m-%d}" if at.time() == datetime.min.time() else f"{at:%Y-%m-%d %H:%M:%S}"
