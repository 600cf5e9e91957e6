"""The text of files: each kind with its places, its tables and its limits."""

# ruff: noqa: RUF001 - other scripts are the subject
import itertools
import time

import pytest

from intake.attachments.reading import Part, Unreadable
from intake.attachments.reading.formats import read_file
from intake.attachments.reading.parts import LONGEST_PART, MOST_TEXT, lines_of, reading_of, sections_of, table_of
from intake.attachments.reading.process import read_safely
from intake.tests.attached import a_picture
from testing import files


def read(data, name="a.txt", media_type=""):
    return read_file(data, name, media_type)


def places(reading):
    return [part.place for part in reading.parts]


def refusal(data, name="a.txt"):
    with pytest.raises(Unreadable) as raised:
        read(data, name)
    return str(raised.value.sentence)


def test_a_note_is_read_by_its_headings():
    note = b"Before.\n\n# Garden\n\nThe roses.\n\n## Water\n\nOn Mondays.\n\n```\n# no heading\n```\n\n# Roof\n\nNew."
    reading = read(note, "note.md")
    assert places(reading) == ["", "Garden", "Garden > Water", "Roof"]
    assert "# no heading" in reading.parts[2].text


def test_a_heading_with_nothing_under_it_is_in_the_places_below_it():
    assert list(sections_of("# One\n\n## Two\n\ntext")) == [Part("One > Two", "## Two\n\ntext")]


def test_a_text_without_headings_has_its_lines_as_places():
    text = "\n".join(f"line {number} of the log" for number in range(1, 401))
    parts = list(lines_of(text))
    assert [part.place for part in parts] == ["lines 1-205", "lines 206-400"]
    assert parts[1].text.startswith("line 206 ")
    assert list(lines_of("short")) == [Part("", "short")]


def test_a_packed_file_yields_at_most_twenty_times_its_bytes():
    packed = files.docx(files.docx_paragraph("The same words. " * 100_000))
    reading = read(packed, "words.docx")
    assert reading.is_cut
    assert sum(len(part.text) for part in reading.parts) <= 200_000 < 20 * 100_000


def test_no_part_is_longer_than_the_limit_and_nothing_is_lost_between_them():
    text = " ".join(f"word{number}" for number in range(5_000))
    reading = read(text.encode())
    assert max(len(part.text) for part in reading.parts) <= LONGEST_PART
    assert " ".join("".join(part.text for part in reading.parts).split()) == text


def test_a_part_ends_after_a_paragraph_if_it_can():
    text = "\n\n".join("a paragraph of some length. " * 20 for _ in range(20))
    assert all(part.text.endswith("length. ") for part in read(text.encode()).parts)


def test_a_text_that_is_too_long_is_read_up_to_the_limit_and_says_so():
    endless = (Part("", "a" * LONGEST_PART) for _ in itertools.count())
    reading = reading_of(endless)
    assert reading.is_cut
    assert sum(len(part.text) for part in reading.parts) == MOST_TEXT


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_a_text_is_read_in_its_encoding(encoding):
    text = "Das Gebäude wurde für fünf Jahre gemietet, die Schlüssel liegen in der Küche." * 5
    assert read(text.encode(encoding)).parts[0].text.startswith("Das Gebäude wurde für")


# Short texts, as in a table of two columns: of a long one every guess is right.
SHORT = {
    "gb18030": ["名称,价格\n水车,三元", "会议纪要", "钥匙在抽屉里", "编号,备注\n1,已付款", "茶叶"],
    "cp949": ["이름,가격\n물레방아,삼천원", "오늘 날씨가 좋네요. 공원에 갑시다."],
    "big5": ["姓名,城市\n王小明,臺北", "鑰匙在抽屜裡", "編號,備註\n1,已付款"],
    "cp932": ["名前,価格\n水車,三円", "会議録", "番号,備考\n1,支払済み"],
    "cp1252": ["Name;Preis\nKäse;3 €", "Müller", "élève,âge\nZoé,9", "Año,Niño\n2020,José", "naïve café"],
    "cp1251": ["Имя,Цена\nМука,3 руб.", "Привет"],
    "cp1250": ["Nazwa,Cena\nMąka,3 zł", "Łódź", "Żółw,Źrebię"],
    "iso8859-7": ["Καλημέρα", "Το κλειδί είναι στο συρτάρι"],
    "cp1254": ["Günaydın arkadaşlar, nasılsınız"],
}


@pytest.mark.parametrize(("encoding", "text"), [(name, text) for name, texts in SHORT.items() for text in texts])
def test_a_short_text_without_a_stated_encoding_is_read_and_says_that_it_was_guessed(encoding, text):
    reading = read(text.encode(encoding))
    assert reading.parts[0].text == text
    assert str(reading.notes[0]).startswith("The encoding of this text is not stated. It was guessed: ")


@pytest.mark.parametrize("text", ["Name,Price\nEel,4\n", "姓名,城市\n一二,成都\n"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_read(text, encoding):
    reading = read(text.encode(encoding))
    assert (reading.parts[0].text, reading.notes) == (text.rstrip("\n"), [])


def test_a_text_in_utf_8_with_some_damage_stays_one():
    reading = read("Müller in Köln, Grüße \xff".encode().replace("ÿ".encode(), b"\xff"))
    assert (reading.parts[0].text, reading.notes) == ("Müller in Köln, Grüße \ufffd", [])


def test_a_nul_and_half_a_surrogate_are_not_kept():
    assert reading_of([Part("a\0", "b\0\ud800c")]).parts == [Part("a", "b\ufffdc")]


def test_a_table_is_in_groups_of_rows_with_the_header_above_each():
    reading = read(files.csv_rows(300), "prices.csv")
    assert places(reading)[0] == "rows 1-103"
    assert all(part.text.startswith("| id | name | price | day |\n| --- |") for part in reading.parts)
    assert "| 299 | item 299 | 93.50 | 2026-12-01 |" in reading.parts[-1].text


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_of_a_table_is_found(delimiter):
    rows = [["name", "note"], ["cello", 'with "quotes" and | bars'], ["bow", "line\nend"]]
    text = "\n".join(delimiter.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)
    (part,) = read(text.encode(), "a.csv").parts
    assert part.text.split("\n")[2:] == ['| cello | with "quotes" and \\| bars |', "| bow | line end |"]


def test_a_first_line_that_states_the_delimiter_is_no_row():
    (part,) = read(b"sep=;\r\nName;Note, long\r\nEel;4\r\n", "a.csv").parts
    assert part == Part("rows 2-3", "| Name | Note, long |\n| --- | --- |\n| Eel | 4 |")


def test_a_row_that_is_too_long_is_cut_and_not_left_out():
    rows = [(1, ["a" * 2_000, "b"]), (2, ["c" * 9_000, "d"]), (3, ["e", "f"])]
    text = "".join(part.text for part in reading_of(table_of(rows)).parts)
    assert (text.count("a"), text.count("c"), text.count("e")) == (2_000, 9_000, 1)


def test_the_pages_of_a_pdf_are_its_places():
    reading = read(files.pdf(["The lease (of 2026) ends in May.", "Ä second page"]), "a.pdf")
    assert reading.pages == 2
    assert reading.parts == [Part("page 1", "The lease (of 2026) ends in May."), Part("page 2", "Ä second page")]


@pytest.mark.parametrize(
    ("pages", "note"),
    [
        (["a", "", "", "b", ""], "Pages 2–3, 5 have no text: they may be pictures."),
        (["a", ""], "Page 2 has no text: it may be a picture."),
    ],
)
def test_the_pages_of_a_pdf_that_have_no_text_are_named(pages, note):
    reading = read(files.pdf(pages), "a.pdf")
    assert [str(each) for each in reading.notes] == [note]
    assert read_safely(files.pdf(pages), "a.pdf", "").notes == reading.notes


def test_a_pdf_without_text_says_that_it_may_be_a_scan():
    assert refusal(files.pdf(["", ""]), "a.pdf") == "The pages have no text: the file may be a scan."


def test_a_document_is_read_with_its_headings_tables_and_lists():
    body = (
        files.docx_paragraph("Offer", style="berschrift1")
        + files.docx_paragraph("For the cello.")
        + files.docx_table([["part", "price"], ["bow", "300"]])
        + "<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>an item</w:t></w:r></w:p>"
    )
    (part,) = read(files.docx(body), "offer.docx").parts
    assert part.place == "Offer"
    assert part.text == "# Offer\n\nFor the cello.\n\n| part | price |\n| --- | --- |\n| bow | 300 |\n\n- an item"


def test_insertions_frames_and_notes_of_a_document_are_read_and_deletions_are_not():
    frame = (
        "<mc:AlternateContent xmlns:mc='m'><mc:Choice><w:txbxContent>{0}</w:txbxContent></mc:Choice>"
        "<mc:Fallback><w:txbxContent>{0}</w:txbxContent></mc:Fallback></mc:AlternateContent>"
    ).format(files.docx_paragraph("in a frame"))
    body = (
        "<w:p><w:ins><w:r><w:t>inserted</w:t></w:r></w:ins><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del></w:p>"
        + files.docx_paragraph("around it", before=frame)
        + "<w:sdt><w:sdtContent>" + files.docx_paragraph("in a control") + "</w:sdtContent></w:sdt>"
    )  # fmt: skip
    notes = f"<w:footnotes {files.WORD}><w:footnote>{files.docx_paragraph('a footnote')}</w:footnote></w:footnotes>"
    parts = read(files.docx(body, more={"word/footnotes.xml": notes}), "a.docx").parts
    assert parts == [Part("", "inserted\n\nin a frame\n\naround it\n\nin a control"), Part("Footnotes", "a footnote")]


def test_signs_of_a_document_that_are_elements_are_read():
    body = (
        "<w:p><w:r><w:t>1</w:t><w:noBreakHyphen/><w:t>24 hours at 45</w:t><w:sym w:font='Symbol' w:char='F0B0'/>"
        "<w:ptab/><w:sym w:font='Symbol' w:char='F061'/><w:sym w:font='Wingdings' w:char='F0FC'/>"
        "<w:sym w:font='Segoe UI Symbol' w:char='2713'/><w:softHyphen/></w:r></w:p>"
        "<w:p><w:r><w:ruby><w:rt><w:r><w:t>とう</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>東</w:t></w:r></w:rubyBase>"
        "</w:ruby></w:r><w:r><w:t>京</w:t></w:r></w:p>"
    )
    assert read(files.docx(body), "a.docx").parts == [Part("", "1-24 hours at 45°\tα✓✓\n\n東京")]


def test_headers_and_footers_of_a_document_are_read_once():
    header = f"<w:hdr {files.WORD}>{files.docx_paragraph('HX-7788')}</w:hdr>"
    footer = f"<w:ftr {files.WORD}>{files.docx_paragraph('private')}</w:ftr>"
    more = {"word/header1.xml": header, "word/header2.xml": header, "word/footer1.xml": footer}
    parts = read(files.docx(files.docx_paragraph("text"), more=more), "a.docx").parts
    assert parts == [Part("", "text"), Part("Headers", "HX-7788"), Part("Footers", "private")]


OPEN = 'xmlns:office="o" xmlns:text="t" xmlns:table="b" xmlns:style="s" xmlns:draw="d"'


def open_document(kind, body, **more):
    return files.zipped({
        "mimetype": f"application/vnd.oasis.opendocument.{kind}",
        "content.xml": f"<office:document-content {OPEN}><office:body>{body}</office:body></office:document-content>",
        "styles.xml": f"<office:s {OPEN}>{'<style:header><text:p>HX-7</text:p></style:header>' * 2}</office:s>",
        "META-INF/manifest.xml": "<manifest/>",
        **more,
    })  # fmt: skip


def test_an_open_document_is_read_with_headings_tables_lists_and_notes():
    body = (
        "<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes><text:h text:outline-level='1'>Offer</text:h>"
        "<text:p>For<text:s text:c='2'/>the <text:span>cello</text:span><text:tab/>now<text:note><text:note-citation>1"
        "</text:note-citation><text:note-body><text:p>a footnote</text:p></text:note-body></text:note></text:p>"
        "<text:list><text:list-item><text:p><text:ruby><text:ruby-base>東</text:ruby-base><text:ruby-text>とう"
        "</text:ruby-text></text:ruby>京</text:p></text:list-item></text:list><table:table><table:table-row>"
        "<table:table-cell><text:p>part</text:p></table:table-cell><table:table-cell table:number-columns-repeated='2'>"
        "<text:p>7</text:p></table:table-cell><table:table-cell table:number-columns-repeated='16000'/></table:table-row>"
        "</table:table>"
    )
    assert read(open_document("text", body), "a.odt").parts == [
        Part(
            "Offer", "# Offer\n\na footnote\n\nFor  the cello\tnow\n\n- 東京\n\n| part | 7 | 7 |\n| --- | --- | --- |"
        ),
        Part("Headers", "HX-7"),
    ]


def test_the_sheets_and_slides_of_open_documents_are_their_places():
    table = "<table:table table:name='{0}'><table:table-row><table:table-cell><text:p>{0}1</text:p></table:table-cell></table:table-row></table:table>"
    sheets = "<office:spreadsheet>" + table.format("Eels") + table.format("Rye") + "</office:spreadsheet>"
    talk = "<draw:page draw:name='page1'><draw:frame><text:p>Buy a cello</text:p></draw:frame></draw:page>"
    assert places(read(open_document("spreadsheet", sheets), "a.ods")) == ["Eels", "Rye", "Headers"]
    assert read(open_document("presentation", talk), "a.odp").parts[0] == Part("page1", "# page1\n\nBuy a cello")
    locked = open_document("text", "", **{"META-INF/manifest.xml": "<manifest:encryption-data/>"})
    assert refusal(locked, "a.odt") == "The file is protected by a password."


def test_rich_text_is_read_in_the_encodings_of_its_fonts():
    rich = (
        rb"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset0 Times;}{\f1\fcharset204 Arial;}}{\info{\author Nobody}}"
        rb"\f0 Caf\'e9 \u-10179?\u-8694? {\b bold}\par {\f1\'cf\'f0\'e8\'e2\'e5\'f2}}"
    )
    assert read(rich, "a.rtf").parts == [Part("", "Café 😊 bold\nПривет")]


def test_a_formula_without_a_kept_value_is_shown():
    row = (
        '<row r="1"><c r="A1"><f>SUM(B1:C1)</f></c><c r="B1"><f>1+1</f><v>2</v></c>'
        '<c r="C1" t="str"><f>IF(1,"","x")</f><v></v></c><c r="D1"><f>1/3</f><v/></c></row>'
    )
    (part,) = read(files.xlsx_of({"S": row}), "a.xlsx").parts
    assert part.text.startswith("| =SUM(B1:C1) | 2 |  | =1/3 |")


def test_a_sheet_is_a_table_with_its_days_as_days():
    styles = (
        '<numFmts><numFmt numFmtId="164" formatCode="dd/mm/yyyy hh:mm"/><numFmt numFmtId="165" formatCode="0 &quot;days&quot;"/>'
        '</numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="165"/></cellXfs>'
    )
    rows = [
        ["item", "price", "day"],
        ["cello", 0.1 + 0.2, (46082, 1)],
        ["bow", (7, 3), (46082.5, 2)],
        [],
        ["", "", "far"],
    ]
    reading = read(files.xlsx({"Prices": rows, "Empty": [], "More": [["x"]]}, styles=styles), "a.xlsx")
    assert places(reading) == ["sheet Prices, rows 1-5", "sheet More, row 1"]
    assert reading.parts[0].text.split("\n")[2:] == [
        "| cello | 0.3 | 2026-03-01 |",
        "| bow | 7 | 2026-03-01 12:00:00 |",
        "|  |  | far |",
    ]


def test_slides_are_read_in_their_order_with_their_notes():
    reading = read(files.pptx([("Plan", "Buy a cello", "Mention the bow"), ("End", "Thanks", "")]), "a.pptx")
    assert reading.parts == [
        Part("slide 1", "Plan\n\nBuy a cello\n\nNotes:\n\nMention the bow"),
        Part("slide 2", "End\n\nThanks"),
    ]


def test_a_book_is_read_by_its_chapters():
    reading = read(files.epub(["<h1>The sea</h1><p>It was <b>calm</b>.</p>", "<p>No heading.</p>"]), "a.epub")
    assert reading.parts == [Part("The sea", "# The sea\n\nIt was **calm**."), Part("chapter 2", "No heading.")]


@pytest.mark.parametrize("letter", [files.eml("Lunch", "At noon."), files.eml("Lunch", "", html="<p>At noon.</p>")])
def test_a_letter_has_its_subject_and_its_writer(letter):
    (part,) = read(letter, "a.eml").parts
    assert part.place == "Lunch"
    assert part.text.startswith("Subject: Lunch\nFrom: Ada <ada@example.com>\nTo: bob@example.com")
    assert part.text.endswith("At noon.")


def test_what_is_attached_to_a_letter_is_named():
    (part,) = read(files.eml("Lunch", "At noon.", attached={"menu.pdf": b"x"}), "a.eml").parts
    assert part.text.endswith("Attachments, which were not read: menu.pdf")


def test_json_without_line_ends_is_written_with_some():
    (part,) = read(files.json_text({"a": "b" * 600, "c": [1, 2]}), "a.json").parts
    assert '"c": [\n  1,\n  2\n ]' in part.text


def test_a_page_is_read_without_its_scripts():
    (part,) = read(b"<!doctype html><html><script>alert(1)</script><h1>Hi</h1><p>there</p></html>", "a.html").parts
    assert part == Part("Hi", "# Hi\n\nthere")


@pytest.mark.parametrize(
    ("data", "name", "text"),
    [
        (b"name,price\ncello,700", "prices.xlsx", "name,price\ncello,700"),
        (files.pdf(["a page"]), "page.txt", "a page"),
        (files.docx(files.docx_paragraph("a letter")), "letter.pdf", "a letter"),
        (b"<html>" + files.pdf(["both"]), "both.html", "both"),
    ],
    ids=["text as xlsx", "pdf as txt", "docx as pdf", "pdf in html"],
)
def test_the_content_says_what_a_file_is_before_its_name_does(data, name, text):
    assert read(data, name).parts[0].text == text


def test_a_picture_has_no_text_and_is_no_error():
    assert read(files.png(2, bytes(4)), "a.png").parts == []


@pytest.mark.medium
def test_a_flat_picture_of_fifty_million_pixels_is_read_or_refused_with_a_sentence():
    """It is small as a file; the process that reads it bounds its memory."""
    rgb = a_picture(7_000, 7_100)
    assert len(rgb) < 300_000
    assert len(read_safely(rgb, "a.png", "image/png").pictures) == 2
    with pytest.raises(Unreadable, match="takes more memory"):
        read_safely(a_picture(7_000, 7_100, is_transparent=True), "a.png", "image/png")


def test_a_jpeg_with_more_scans_than_a_camera_writes_is_refused_before_it_is_decoded():
    assert len(read(files.jpeg_of_scans(100, 64), media_type="image/jpeg").pictures) == 2
    begun = time.process_time()
    with pytest.raises(Unreadable, match="more scans than a camera writes"):
        read(files.jpeg_of_scans(2_000, 4_000), media_type="image/jpeg")
    # The picture itself is made in a fifth of a second, and was decoded in half a minute.
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    ("data", "name", "sentence"),
    [
        (b"", "a.txt", "The file has no text."),
        (bytes(range(256)) * 9, "a.bin", "Files of this kind are kept, but cannot be read."),
        (bytes(range(256)) * 9, "a.mp4", "Videos are kept, but cannot be read."),
        (bytes(range(256)) * 9, "a.mp3", "Recordings are kept, but cannot be read."),
        (files.zipped({"a.txt": "a"}), "a.zip", "Archives are kept, but cannot be read: add the files in them."),
        (files.encrypted_pdf(), "a.pdf", "The file is protected by a password."),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"), "a.docx", "The file is protected by a password."),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a.doc", "Files of Word, Excel and PowerPoint from before 2007 cannot be read. Save it in a newer format."),
        (files.pdf(["a"] * 9)[:900], "a.pdf", "The file is damaged, or it is not what its name says."),
        (files.docx(files.docx_paragraph("a"))[:400], "a.docx", "The file is damaged, or it is not what its name says."),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_says_why(data, name, sentence):
    assert refusal(data, name) == sentence
