"""Reads PDF, page by page."""

import re
from collections.abc import Iterator
from typing import Any

from core.text import gettext_noop as _
from intake.attachments.reading.parts import DAMAGED, ENCRYPTED, Part, Reading, Unreadable, reading_of

# Where a word is divided at the end of a line, PDFium writes one of these and not a hyphen.
_DIVIDED = re.compile(r"[\x02\ufffe](?:\r?\n)?")
_SCAN = _("The pages have no text: the file may be a scan.")


def read_pdf(data: bytes) -> Reading:
    # The library is loaded in the process of a file, and only for a PDF.
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
        pages = len(document)
    except pypdfium2.PdfiumError as error:
        raise Unreadable(ENCRYPTED if "password" in str(error).lower() else DAMAGED) from error
    reading = reading_of(_pages(document, pages), pages=pages, size=len(data))
    if not reading.parts:
        raise Unreadable(_SCAN if pages else DAMAGED)
    return reading


def _pages(document: Any, pages: int) -> Iterator[Part]:
    """A page that is damaged is as a page without text."""
    import pypdfium2

    for number in range(pages):
        try:
            page = document[number]
            text_page = page.get_textpage()
            text = text_page.get_text_range()
            text_page.close()
            page.close()
        except pypdfium2.PdfiumError:
            continue
        yield Part(f"page {number + 1}", _DIVIDED.sub("", text).replace("\r\n", "\n"))
