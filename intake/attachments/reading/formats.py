"""Tells what a file is, by its content first and then by its name, and reads texts, tables, pages and letters."""

import csv
import email
import email.policy
import io
import json
import mimetypes
import re
from collections.abc import Callable, Iterator, Mapping
from email.message import EmailMessage

from core.encodings import MOST_NONSENSE, decoded, share_of_nonsense
from core.text import Sentence
from core.text import gettext_noop as _
from intake.attachments.reading.html_text import html_to_text, main_text
from intake.attachments.reading.office import read_package
from intake.attachments.reading.parts import (
    DAMAGED,
    ENCRYPTED,
    NO_TEXT,
    UNKNOWN,
    Part,
    Reading,
    Unreadable,
    lines_of,
    reading_of,
    sections_of,
    table_of,
)
from intake.attachments.reading.pdf import read_pdf
from intake.attachments.reading.pictures import PICTURES, read_picture

_GUESSED = _("The encoding of this text is not stated. It was guessed: %(encoding)s.")
_BEFORE_2007 = _("Files of Word, Excel and PowerPoint from before 2007 cannot be read. Save it in a newer format.")

# The type of a page as a server of the web sent it: its main text is read.
WEB_PAGE = "text/html; main"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_PICTURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0")
_BRANDS_OF_PICTURES = (b"ftypheic", b"ftypheix", b"ftypmif1", b"ftypavif")
_LOOKED_AT = 8_192
_PAGE = re.compile(
    r"\s{0,200}(?:<\?xml[^>]{0,200}>\s{0,200})?(?:<!--.{0,500}?-->\s{0,200})?<(?:!doctype html|html|svg)\b",
    re.IGNORECASE | re.DOTALL,
)
_LETTER_HEADERS = re.compile(
    r"^(?:return-path|received|from|to|date|subject|message-id|mime-version|delivered-to):",
    re.IGNORECASE | re.MULTILINE,
)
_DELIMITERS = ",;\t|"
_DELIMITER_LINE = re.compile(r'"?sep=([^\n"])"?\n')
# The lines that are compared to find the delimiter of a table.
_COMPARED = 20

_KINDS = {
    "md": "markdown", "markdown": "markdown", "mdx": "markdown",
    "csv": "table", "tsv": "table", "tab": "table",
    "json": "json", "ipynb": "json", "geojson": "json",
    "html": "page", "htm": "page", "xhtml": "page", "svg": "page",
    "eml": "letter",
}  # fmt: skip
_KINDS_BY_TYPE = {
    "text/markdown": "markdown",
    "text/csv": "table",
    "text/tab-separated-values": "table",
    "application/json": "json",
    "text/html": "page",
    "message/rfc822": "letter",
}


def read_file(data: bytes, name: str, media_type: str) -> Reading:
    """The text of a file; a picture has none, and is scaled down. Raises `Unreadable`.

    To be called in a process of its own (`process.read_safely`): a hostile file takes time and memory.
    """
    is_webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    if is_webp or data.startswith(_PICTURES) or data[4:12] in _BRANDS_OF_PICTURES:
        return read_picture(data) if media_type in PICTURES else Reading([])
    if b"%PDF-" in data[:1024]:
        return read_pdf(data)
    if data.startswith((b"PK\3\4", b"PK\5\6")):
        return read_package(data)
    if data.startswith(_OLE):
        raise Unreadable(ENCRYPTED if _ENCRYPTED_PACKAGE in data else _BEFORE_2007)
    text, guessed = decoded(data)
    beginning = text[:_LOOKED_AT]
    if "\0" in beginning or share_of_nonsense(beginning.replace("\ufffd", "")) > MOST_NONSENSE:
        is_packed = data.startswith((b"\x1f\x8b", b"7z\xbc\xaf", b"Rar!"))
        family = "archive" if is_packed else (mimetypes.guess_type(name)[0] or media_type).partition("/")[0]
        raise Unreadable(UNKNOWN.get(family, UNKNOWN[""]))
    if not text.strip():
        raise Unreadable(NO_TEXT)
    try:
        kind = "rich" if text.startswith("{\\rtf") else _kind(text, name, media_type)
        kind = "main" if kind == "page" and media_type == WEB_PAGE else kind
        notes = [Sentence(_GUESSED, encoding=guessed)] if guessed and kind != "rich" else []
        reading = reading_of(_READERS[kind](text), size=len(data), notes=notes)
    except (RecursionError, csv.Error, LookupError) as error:
        raise Unreadable(DAMAGED) from error
    if not reading.parts:
        raise Unreadable(NO_TEXT)
    return reading


def _kind(text: str, name: str, media_type: str) -> str:
    if _PAGE.match(text):
        return "page"
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    kind = _KINDS.get(ending) or _KINDS_BY_TYPE.get(media_type.partition(";")[0].strip().lower(), "text")
    is_letter = len(_LETTER_HEADERS.findall(text.partition("\n\n")[0][:_LOOKED_AT])) >= 4
    return "letter" if kind == "text" and is_letter else kind


def _read_json(text: str) -> Iterator[Part]:
    """Without line ends it is written with some."""
    if max(map(len, text.split("\n", _COMPARED)[:_COMPARED])) <= 500:
        return lines_of(text)
    try:
        again = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    except (ValueError, RecursionError):
        return lines_of(text)
    return (part._replace(place="") for part in lines_of(again))


def _read_table(text: str) -> Iterator[Part]:
    # A first line for Excel, which is no row.
    stated = _DELIMITER_LINE.match(text)
    text = text[stated.end() :] if stated else text
    lines = [line for line in text.split("\n", _COMPARED)[:_COMPARED] if line.strip()] or [""]
    counts = {each: (min(line.count(each) for line in lines), lines[0].count(each)) for each in _DELIMITERS}
    delimiter = stated[1] if stated else max(counts, key=lambda each: counts[each])
    csv.field_size_limit(len(text) + 1)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    return table_of(enumerate(rows, start=2 if stated else 1))


def _read_rich(text: str) -> Iterator[Part]:
    """RTF, which writes signs beyond the first plane as two."""
    from striprtf.striprtf import rtf_to_text

    plain = rtf_to_text(text, errors="replace")  # type: ignore[no-untyped-call]
    return lines_of(plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))


def _read_letter(text: str) -> Iterator[Part]:
    # The parser decodes each part itself.
    letter = email.message_from_bytes(text.encode(), _class=EmailMessage, policy=email.policy.default)
    headers = [f"{name}: {letter[name]}" for name in ("Subject", "From", "To", "Cc", "Date") if letter[name]]
    body = letter.get_body(("plain", "html"))
    content = body.get_content() if body is not None else ""
    if body is not None and body.get_content_subtype() == "html":
        content = html_to_text(content)
    attached = [name for each in letter.iter_attachments() if (name := each.get_filename())]
    names = [f"Attachments, which were not read: {', '.join(attached)}"] if attached else []
    yield Part(str(letter["Subject"] or ""), "\n\n".join(["\n".join(headers), content.strip(), *names]))


_READERS: Mapping[str, Callable[[str], Iterator[Part]]] = {
    "markdown": sections_of,
    "table": _read_table,
    "json": _read_json,
    "page": lambda text: sections_of(html_to_text(text)),
    "main": lambda text: sections_of(main_text(text)),
    "letter": _read_letter,
    "rich": _read_rich,
    "text": lines_of,
}
