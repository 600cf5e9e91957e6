"""Makes the files that tests and the benchmark attach, byte by byte: documents of each kind, and hostile ones."""

import io
import json
import random
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from email.message import EmailMessage
from xml.sax.saxutils import escape

from PIL import Image

WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_SHEET = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_SLIDE = (
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
)
_RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"


# --- PDF ---


def pdf(pages: Iterable[str], *, extra: Mapping[str, str] | None = None) -> bytes:
    """A PDF with a page of text for each of these, in Helvetica. `extra`: entries of the page tree's root."""
    contents = [_page_content(text) for text in pages]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(contents)))
    more = " ".join(f"/{name} {value}" for name, value in (extra or {}).items())
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} {more} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, content in enumerate(contents):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents %d 0 R >>" % (5 + 2 * number)
        )
        packed = zlib.compress(content)
        objects.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n%b\nendstream" % (len(packed), packed))
    return pdf_of(objects)


def pdf_of(objects: Sequence[bytes], *, trailer: bytes = b"") -> bytes:
    """A PDF of these objects, numbered from 1; the first is the catalogue."""
    out = io.BytesIO()
    out.write(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    places = []
    for number, each in enumerate(objects, start=1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%b\nendobj\n" % (number, each))
    began = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(b"trailer\n<< /Size %d /Root 1 0 R %b >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, began))
    return out.getvalue()


def _page_content(text: str) -> bytes:
    lines = [line for paragraph in text.split("\n") for line in _wrapped(paragraph)]
    shown = b"".join(b"(%b) Tj T*\n" % _pdf_string(line) for line in lines)
    return b"BT /F1 10 Tf 12 TL 50 800 Td\n%bET" % shown


def _wrapped(text: str, width: int = 95) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        if line and len(line) + len(word) >= width:
            yield line
            line = word
        else:
            line = f"{line} {word}".strip()
    yield line


def _pdf_string(text: str) -> bytes:
    plain = text.encode("cp1252", errors="replace")
    return plain.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


# --- Zips of XML ---


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as package:
        for name, content in members.items():
            package.writestr(name, content)
    return out.getvalue()


def _relations(targets: Iterable[tuple[str, str, str]]) -> str:
    every = "".join(f'<Relationship Id="{id_}" Type="{_RELATION}/{kind}" Target="{to}"/>' for id_, kind, to in targets)
    return f'<Relationships xmlns="{_RELATIONS}">{every}</Relationships>'


def docx_paragraph(text: str, *, style: str = "", before: str = "") -> str:
    named = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{named}{before}<w:r><w:t xml:space='preserve'>{escape(text)}</w:t></w:r></w:p>"


def docx_table(rows: Iterable[Sequence[str]]) -> str:
    cells = ("".join(f"<w:tc>{docx_paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def docx(body: str, *, more: Mapping[str, str | bytes] | None = None) -> bytes:
    """A DOCX with this body. Its headings have the styles that a German Word would write: `berschrift1` and on."""
    styles = "".join(
        f'<w:style w:styleId="berschrift{level}"><w:name w:val="heading {level}"/></w:style>' for level in range(1, 7)
    )
    return zipped(
        {
            "_rels/.rels": _relations([("rId1", "officeDocument", "word/document.xml")]),
            "word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>",
            "word/styles.xml": f"<w:styles {WORD}>{styles}</w:styles>",
            **(more or {}),
        }
    )


def docx_of(sections: Iterable[tuple[str, str]], *, pictures: int = 0) -> bytes:
    """A DOCX with a heading and paragraphs for each of these, and pictures of noise between them."""
    body = "".join(
        docx_paragraph(heading, style="berschrift1") + "".join(map(docx_paragraph, text.split("\n\n")))
        for heading, text in sections
    )
    noise = random.Random(7)
    more = {f"word/media/image{number}.png": png(300, noise.randbytes(300 * 300)) for number in range(pictures)}
    return docx(body, more=more)


def xlsx(sheets: Mapping[str, Iterable[Sequence[object]]], *, styles: str = "") -> bytes:
    """An XLSX; numbers as numbers, and texts among the shared strings. A pair is a number and its style."""
    strings: dict[str, int] = {}
    data = {
        name: "".join(
            f'<row r="{number}">{"".join(_cell(each, at, number, strings) for at, each in enumerate(row))}</row>'
            for number, row in enumerate(rows, start=1)
        )
        for name, rows in sheets.items()
    }
    return xlsx_of(data, strings=strings, styles=styles)


def xlsx_of(data: Mapping[str, str], *, strings: Iterable[str] = (), styles: str = "") -> bytes:
    """An XLSX of sheets whose rows are written already."""
    sheets = {
        f"xl/worksheets/sheet{place}.xml": f"<worksheet {_SHEET}><sheetData>{rows}</sheetData></worksheet>"
        for place, rows in enumerate(data.values(), start=1)
    }
    names = "".join(
        f'<sheet name="{escape(name)}" sheetId="{place}" r:id="rId{place}"/>' for place, name in enumerate(data, 1)
    )
    shared = "".join(f"<si><t>{escape(text)}</t></si>" for text in strings)
    return zipped(
        {
            "_rels/.rels": _relations([("rId1", "officeDocument", "xl/workbook.xml")]),
            "xl/workbook.xml": f'<workbook {_SHEET} xmlns:r="{_RELATION}"><sheets>{names}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": _relations(
                (f"rId{place}", "worksheet", f"worksheets/sheet{place}.xml") for place in range(1, len(data) + 1)
            ),
            "xl/sharedStrings.xml": f"<sst {_SHEET}>{shared}</sst>",
            "xl/styles.xml": f"<styleSheet {_SHEET}>{styles}</styleSheet>",
            **sheets,
        }
    )


def _cell(value: object, column: int, row: int, strings: dict[str, int]) -> str:
    reference = f"{_letters(column)}{row}"
    match value:
        case "":
            return ""
        case (number, style):
            return f'<c r="{reference}" s="{style}"><v>{number}</v></c>'
        case int() | float():
            return f'<c r="{reference}"><v>{value}</v></c>'
    return f'<c r="{reference}" t="s"><v>{strings.setdefault(str(value), len(strings))}</v></c>'


def _letters(column: int) -> str:
    letters = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def pptx(slides: Sequence[tuple[str, str, str]]) -> bytes:
    """A PPTX with a title, a text and notes for each of these."""
    members: dict[str, str | bytes] = {
        "_rels/.rels": _relations([("rId1", "officeDocument", "ppt/presentation.xml")]),
        "ppt/_rels/presentation.xml.rels": _relations(
            (f"rId{number}", "slide", f"slides/slide{number}.xml") for number in range(1, len(slides) + 1)
        ),
        "ppt/presentation.xml": f'<p:presentation {_SLIDE} xmlns:r="{_RELATION}"><p:sldIdLst>'
        + "".join(f'<p:sldId id="{255 + number}" r:id="rId{number}"/>' for number in range(1, len(slides) + 1))
        + "</p:sldIdLst></p:presentation>",
    }
    for number, (title, text, notes) in enumerate(slides, start=1):
        shapes = "".join(f"<a:p><a:r><a:t>{escape(each)}</a:t></a:r></a:p>" for each in (title, text))
        members[f"ppt/slides/slide{number}.xml"] = f"<p:sld {_SLIDE}>{shapes}</p:sld>"
        if notes:
            members[f"ppt/slides/_rels/slide{number}.xml.rels"] = _relations(
                [("rId1", "notesSlide", f"../notesSlides/notesSlide{number}.xml")]
            )
            spoken = f"<a:p><a:r><a:t>{escape(notes)}</a:t></a:r></a:p>"
            members[f"ppt/notesSlides/notesSlide{number}.xml"] = f"<p:notes {_SLIDE}>{spoken}</p:notes>"
    return zipped(members)


def epub(chapters: Sequence[str]) -> bytes:
    """An EPUB whose chapters are these bodies of HTML."""
    items = "".join(f'<item id="c{number}" href="text/c%20{number}.xhtml"/>' for number in range(len(chapters)))
    order = "".join(f'<itemref idref="c{number}"/>' for number in range(len(chapters)))
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfile full-path="OEBPS/book.opf"/></container>',
            "OEBPS/book.opf": f"<package><manifest>{items}</manifest><spine>{order}</spine></package>",
            **{
                f"OEBPS/text/c {number}.xhtml": f"<html><head><title>x</title></head><body>{body}</body></html>"
                for number, body in enumerate(chapters)
            },
        }
    )


def eml(subject: str, body: str, *, html: str = "", attached: Mapping[str, bytes] | None = None) -> bytes:
    letter = EmailMessage()
    letter["Subject"], letter["From"], letter["To"] = subject, "Ada <ada@example.com>", "bob@example.com"
    letter["Date"] = "Mon, 02 Mar 2026 10:00:00 +0000"
    if body:
        letter.set_content(body)
    if html:
        letter.add_alternative(html, subtype="html") if body else letter.set_content(html, subtype="html")
    for name, data in (attached or {}).items():
        letter.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
    return letter.as_bytes()


def jpeg_of_scans(scans: int, side: int) -> bytes:
    """A progressive JPEG of one colour: its shortest scan stands in it again and again, and each costs a pass."""
    written = io.BytesIO()
    Image.new("RGB", (side, side), (10, 200, 30)).save(written, "JPEG", progressive=True)
    head, *parts = written.getvalue()[:-2].split(b"\xff\xda")
    shortest = min(parts, key=len).partition(b"\xff\xc4")[0]
    return b"\xff\xda".join([head, *parts, *[shortest] * (scans - len(parts))]) + b"\xff\xd9"


def png(width: int, grey: bytes) -> bytes:
    """A grey picture of these pixels."""
    height = len(grey) // width
    rows = b"".join(b"\0" + grey[row * width : (row + 1) * width] for row in range(height))
    header = width.to_bytes(4) + height.to_bytes(4) + b"\x08\0\0\0\0"
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    body = b"".join(len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4) for kind, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


# --- Hostile files: each is refused in a sentence, or read, and costs nothing else ---


def hostile() -> Iterator[tuple[str, str, bytes]]:
    """What each one is, its name, and its bytes; made one after the other, because some take much memory."""
    for what, (name, make) in HOSTILE.items():
        yield what, name, make()


def _bomb() -> bytes:
    return docx(docx_paragraph("a") + "<!--" + " " * (300 * 1024 * 1024) + "-->")


def _laughs() -> bytes:
    entities = "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(12))
    body = docx_paragraph("a").replace(">a<", ">&m;<")
    document = f'<!DOCTYPE a [<!ENTITY a "ha">{entities}]><w:document {WORD}><w:body>{body}</w:body></w:document>'
    relations = _relations([("rId1", "officeDocument", "word/document.xml")])
    return zipped({"_rels/.rels": relations, "word/document.xml": document})


def _cyclic_pdf() -> bytes:
    return pdf_of(
        [
            b"<< /Type /Catalog /Pages 2 0 R /Outlines 4 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1000000 >>",
            b"<< /Type /Pages /Parent 2 0 R /Kids [2 0 R 3 0 R] /Count 1000000 >>",
            b"<< /First 4 0 R /Last 4 0 R /Next 4 0 R /Count 1 >>",
        ]
    )


def encrypted_pdf() -> bytes:
    return pdf_of(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [] /Count 0 >>",
            b"<< /Filter /Standard /V 2 /R 3 /Length 128 /P -4 /O <%b> /U <%b> >>" % (b"41" * 32, b"42" * 32),
        ],
        trailer=b"/Encrypt 3 0 R /ID [<00> <00>]",
    )


def _million_cells() -> bytes:
    return xlsx({"a": ([row * 20 + column for column in range(20)] for row in range(50_000))})


def _far_cells() -> bytes:
    rows = "".join(f'<row r="{row}"><c r="XFD{row}"><v>{row}</v></c></row>' for row in range(1, 50_000))
    return xlsx_of({"a": rows})


def _lying(package: bytes) -> bytes:
    """The largest member claims to have ten bytes."""
    size = max(member.file_size for member in zipfile.ZipFile(io.BytesIO(package)).infolist())
    return package.replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))


def _pdf_bomb() -> bytes:
    packed = zlib.compress(zlib.compress(zlib.compress(bytes(800 * 1024 * 1024), 9), 9), 9)
    return pdf_of(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>",
            b"<< /Length %d /Filter [/FlateDecode /FlateDecode /FlateDecode] >>\nstream\n%b\nendstream"
            % (len(packed), packed),
        ]
    )


def _deep_letter() -> bytes:
    head = b"From: a@example.com\nTo: b@example.com\nSubject: deep\nDate: Mon, 02 Mar 2026 10:00:00 +0000\n"
    part = b"".join(
        b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (number, number) for number in range(3_000)
    )
    return head + part + b"Content-Type: text/plain\n\nhello\n"


def csv_rows(rows: int) -> bytes:
    lines = [f"{number},item {number},{number * 7 % 1000}.50,2026-{1 + number % 12:02}-01" for number in range(rows)]
    return "\n".join(["id,name,price,day", *lines]).encode()


def json_text(value: object) -> bytes:
    return json.dumps(value).encode()


_SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><text>A drawing</text></svg>'
_DEEP_TABLES = "<w:tbl><w:tr><w:tc>" * 100_000 + "</w:tc></w:tr></w:tbl>" * 100_000
_PARAGRAPH = docx_paragraph("hello")
HOSTILE: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "a zip bomb in a DOCX": ("bomb.docx", _bomb),
    "a zip bomb of text in a DOCX": ("text.docx", lambda: docx(docx_paragraph("a" * 1000) * 150_000)),
    "a zip bomb beside the text of a DOCX": (
        "picture.docx",
        lambda: docx(_PARAGRAPH, more={"word/media/a.png": bytes(400 * 1024 * 1024)}),
    ),
    "a zip bomb of strings in an XLSX": (
        "strings.xlsx",
        lambda: xlsx_of({"a": ""}, strings=(f"{row} " + "b" * 60 for row in range(1_500_000))),
    ),
    "a zip that lies about a size": ("lie.docx", lambda: _lying(docx(docx_paragraph("a" * 5_000_000)))),
    "entities that grow in a DOCX": ("laughs.docx", _laughs),
    "tables in tables in a DOCX": ("deep.docx", lambda: docx(_DEEP_TABLES)),
    "a million cells in an XLSX": ("cells.xlsx", _million_cells),
    "cells that are far apart in an XLSX": ("far.xlsx", _far_cells),
    "a cyclic PDF": ("cycle.pdf", _cyclic_pdf),
    "a PDF whose stream unpacks three times": ("flate.pdf", _pdf_bomb),
    "an encrypted PDF": ("locked.pdf", encrypted_pdf),
    "a truncated PDF": ("half.pdf", lambda: pdf(["hello"] * 50)[:3000]),
    "a truncated DOCX": ("half.docx", lambda: docx(_PARAGRAPH)[:500]),
    "a wrong extension": ("prices.xlsx", lambda: b"name,price\ncello,700\n"),
    "a page that is a PDF as well": ("both.html", lambda: b"<html><script>alert(1)</script>" + pdf(["both of them"])),
    "an SVG with a script": ("drawing.svg", lambda: _SVG),
    "a name of 300 characters with ../": ("../" * 98 + "etc.md", lambda: b"# A note\n\nhello"),
    "JSON that is very deep": ("deep.json", lambda: b"[" * 500_000),
    "letters in letters": ("deep.eml", _deep_letter),
    "HTML that never ends": ("open.html", lambda: b"<html>" + b"<div <table <!-- " * 300_000),
    "a line of twenty megabytes": ("line.txt", lambda: b"a" * (20 * 1024 * 1024)),
    "nothing at all": ("empty.txt", lambda: b""),
    "noise": ("noise.bin", lambda: random.Random(1).randbytes(1_000_000)),
}
"""By what they are: the name, and what makes the bytes."""
