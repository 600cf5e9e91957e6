"""Reads PDF, page by page."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from core.text import Sentence
from core.text import gettext_noop as _
from intake.attachments.reading.parts import DAMAGED, ENCRYPTED, Part, Reading, Unreadable, reading_of

# Where a word is divided at the end of a line, PDFium writes one of these and not a hyphen.
_DIVIDED = re.compile(r"[\x02\ufffe](?:\r?\n)?")
_SCAN = _("The pages have no text: the file may be a scan.")
_ONE_WITHOUT = _("Page %(pages)s has no text: it may be a picture.")
_SOME_WITHOUT = _("Pages %(pages)s have no text: they may be pictures.")


def read_pdf(data: bytes) -> Reading:
    # The library is loaded in the process of a file, and only for a PDF.
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
        pages = len(document)
    except pypdfium2.PdfiumError as error:
        raise Unreadable(ENCRYPTED if "password" in str(error).lower() else DAMAGED) from error
    empty: list[int] = []
    reading = reading_of(_pages(document, pages, empty), pages=pages, size=len(data))
    if not reading.parts:
        raise Unreadable(_SCAN if pages else DAMAGED)
    if not empty:
        return reading
    # Pages in a row differ from their place in the list by the same number.
    rows = [[page for _, page in row] for _, row in groupby(enumerate(empty), key=lambda each: each[1] - each[0])]
    named = ", ".join(f"{row[0]}\u2013{row[-1]}" if len(row) > 1 else str(row[0]) for row in rows)
    return replace(reading, notes=[Sentence(_SOME_WITHOUT if len(empty) > 1 else _ONE_WITHOUT, pages=named)])


def _pages(document: Any, pages: int, empty: list[int]) -> Iterator[Part]:
    """Adds the numbers of pages without text, or with damage, to `empty`."""
    import pypdfium2

    for number in range(pages):
        try:
            page = document[number]
            text_page = page.get_textpage()
            text = text_page.get_text_range()
            text_page.close()
            page.close()
        except pypdfium2.PdfiumError:
            text = ""
        if not text.strip():
            empty.append(number + 1)
        yield Part(f"page {number + 1}", _DIVIDED.sub("", text).replace("\r\n", "\n"))
