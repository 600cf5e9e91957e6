"""A zip is made while it is sent: whole, in small pieces, with little memory."""

import io
import random
import tracemalloc
import zipfile
from datetime import UTC, datetime

import pytest

from core.zip_stream import PIECE, ArchiveFile, zipped

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def a_file(name, *pieces, at=NOW, **options):
    return ArchiveFile(name=name, at=at, pieces=pieces, **options)


def unpacked(files):
    with zipfile.ZipFile(io.BytesIO(b"".join(zipped(files)))) as archive:
        assert archive.testzip() is None
        return {entry.filename: (archive.read(entry), entry.date_time) for entry in archive.infolist()}


def test_every_file_is_in_it_with_its_name_and_time():
    files = [
        a_file("Übersicht 🙂.md", b"one ", b"two"),
        a_file("empty.md"),
        a_file("large.json", b"{}", may_be_large=True),
    ]
    assert unpacked(files) == {
        "Übersicht 🙂.md": (b"one two", (2026, 3, 1, 12, 0, 0)),
        "empty.md": (b"", (2026, 3, 1, 12, 0, 0)),
        "large.json": (b"{}", (2026, 3, 1, 12, 0, 0)),
    }


def test_a_zip_of_nothing_is_a_zip():
    assert unpacked([]) == {}


def test_a_time_that_no_zip_can_name_is_the_first_that_it_can():
    assert unpacked([a_file("old", b"x", at=datetime(1066, 1, 1, tzinfo=UTC))])["old"][1] == (1980, 1, 1, 0, 0, 0)


def test_a_second_file_of_the_same_name_is_left_out():
    assert unpacked([a_file("a", b"1"), a_file("a", b"2")])["a"][0] == b"1"


@pytest.mark.extended
def test_a_hundred_megabytes_need_a_few():
    noise = random.Random(1).randbytes(PIECE)
    files = [ArchiveFile(name=f"{number}", at=NOW, pieces=(noise for _ in range(160))) for number in range(10)]
    tracemalloc.start()
    sizes = [len(piece) for piece in zipped(files)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(sizes) > 100_000_000
    assert max(sizes) < 3 * PIECE
    assert peak < 2_000_000
