"""Every file of an export is read, or known to hold no words, or listed by name as not read, by every reader alike."""

import io
import re
import zipfile

import pytest

from evals.expectations import read_all
from imports.reading.files import open_files
from imports.reading.items import Notice, Skipped, UnreadableExport
from imports.reading.products import read, read_files, readers
from imports.tests.histories import HISTORIES
from imports.tests.over_rest import Importer
from intake.tests.factories import a_person

PRODUCTS = [reader.product for reader in readers()]
STRANGERS = {"letters/diary.docx": "PK words", "old/notes.rtf": "words", "chat.sqlite": "words"}


def zipped(files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return data.getvalue()


@pytest.fixture(params=["folder", "zip"])
def export(request, tmp_path):
    def of(files):
        if request.param == "zip":
            (tmp_path / "export.zip").write_bytes(zipped(files))
            return tmp_path / "export.zip"
        for name, text in files.items():
            path = tmp_path / "export" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return tmp_path / "export"

    return of


@pytest.mark.parametrize("product", PRODUCTS)
def test_what_a_reader_does_not_read_is_listed_or_counted(export, product):
    path = export({**HISTORIES[product], **STRANGERS, "photo.png": "x", "empty.bin": ""})
    with open_files(path) as files:
        items = list(read_files(files))
        opened, names = files.opened & set(files.names()), set(files.names())
    listed = {item.where for item in items if isinstance(item, Skipped)}
    counted = [item.text for item in items if isinstance(item, Notice) and "left out" in item.text]
    assert {item.product for item in items if not isinstance(item, Skipped | Notice)} == {product}
    assert listed == set(STRANGERS)
    assert names - opened - listed == {"photo.png", "empty.bin"}
    assert counted == ["Files that hold no messages or notes were left out: 1 bin, 1 png."]


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_named_product_that_finds_nothing_says_what_it_looked_for_and_what_is_there(export, product):
    (reader,) = (each for each in readers() if each.product == product)
    with pytest.raises(UnreadableExport) as raised:
        list(read(export(STRANGERS), product))
    sentence = str(raised.value)
    assert f"Looked for: {reader.looks_for}. Found: " in sentence
    assert reader.label in sentence and all(name in sentence for name in STRANGERS)


def test_zips_in_a_folder_are_read_as_zips_in_a_zip(export):
    files = {"a.zip": zipped(HISTORIES["claude"]), "b/c.zip": zipped(STRANGERS), "no.zip": b"words"}
    reading = read_all(export(files))
    assert [each.title for each in reading.conversations] == ["Noise"]
    assert {each.where for each in reading.skipped} == {*(f"b/c.zip/{name}" for name in STRANGERS), "no.zip"}


@pytest.mark.parametrize("product", PRODUCTS)
def test_one_odd_member_is_listed_and_all_else_comes_in(tmp_path, product):
    files, path = HISTORIES[product], tmp_path / "export.zip"
    path.write_bytes(zipped(files))
    whole = read_all(path)
    ((name, text),) = [*files.items()][:1]
    damaged, locked = (re.sub(r"([^/]+)$", rf"{odd}-\1", name) for odd in ("damaged", "locked"))
    deep = zipped({"deeper.zip": zipped(files)})
    odd = {damaged: text, locked: text, "../up.md": "x", "deep.zip": deep, "broken.zip": "PK\3\4 broken"}
    data = bytearray(zipped({**files, **odd}))
    # A byte of the content; and the flag in the directory's line.
    data[data.index(damaged.encode()) + len(damaged) + len(text) // 2] ^= 1
    data[data.rindex(locked.encode()) - 38] |= 1
    path.write_bytes(data)
    reading = read_all(path)
    assert (reading.conversations, reading.documents) == (whole.conversations, whole.documents)
    assert {each.where for each in reading.skipped} == {
        damaged,
        locked,
        "../up.md",
        "deep.zip/deeper.zip",
        "broken.zip",
    }


@pytest.mark.django_db
def test_the_preview_lists_unread_files(client):
    client.force_login(a_person())
    importer = Importer(client)
    data = zipped({**HISTORIES["chatgpt"], **STRANGERS})
    shown = importer.get(f"{importer.upload(data)}/").json()
    assert shown["state"] == "ready" and shown["found"]["skipped"] == len(STRANGERS)
    # The page shows what is not over above its instructions.
    assert f"/import/{shown['id']}/" in client.get("/import/").text.split('class="how"')[0]
    assert {each["where"] for each in shown["skipped"]} == set(STRANGERS)


@pytest.mark.django_db
def test_half_a_surrogate_pair_in_a_files_name_is_replaced_and_not_refused(client):
    client.force_login(a_person())
    importer = Importer(client)
    id_ = importer.begin(b"x", filename="mill \ud800.zip")
    shown = importer.get(f"{id_}/").json()
    assert shown["filename"] == "mill \ufffd.zip"
