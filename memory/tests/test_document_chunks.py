"""Cutting documents into chunks: nothing lost, nothing too long, and little moves when a document changes."""

import random
import time
from itertools import pairwise

import pytest

from memory.index.sources import CHUNK_BYTES, OVERLAP_BYTES, document_chunks

WORDS = ["river", "stone", "window", "paper", "quiet", "number", "orange", "ladder", "Tuesday", "garden"]


def lines(count, seed=1, first=0):
    pick = random.Random(seed)
    return "".join(
        f"- {number}: {' '.join(pick.choices(WORDS, k=pick.randint(3, 20)))}\n"
        for number in range(first, first + count)
    )


def texts(content):
    return [chunk.text for chunk in document_chunks(content)]


@pytest.mark.parametrize("content", ["", "\n", " \n\n\t\n", "\n" * 5000])
def test_a_blank_document_has_no_chunks(content):
    assert document_chunks(content) == []


def test_a_short_document_is_one_chunk():
    (chunk,) = document_chunks("# Me\n\nI live in Lisbon.\n")
    assert (chunk.text, chunk.start_line, chunk.end_line) == ("# Me\n\nI live in Lisbon.", 1, 3)


@pytest.mark.parametrize("seed", range(10))
def test_chunks_are_whole_lines_of_about_400_tokens_that_overlap_by_about_80(seed):
    content = lines(300, seed)
    numbered = content.split("\n")
    chunks = document_chunks(content)
    assert len(chunks) > 10
    for chunk in chunks:
        assert chunk.text == "\n".join(numbered[chunk.start_line - 1 : chunk.end_line])
        assert len(chunk.text.encode()) <= CHUNK_BYTES
    assert all(len(chunk.text.encode()) > CHUNK_BYTES // 2 for chunk in chunks[:-1])
    for one, next_one in pairwise(chunks):
        common = numbered[next_one.start_line - 1 : one.end_line]
        assert OVERLAP_BYTES // 2 < len("\n".join(common).encode()) <= OVERLAP_BYTES


def test_nothing_is_lost():
    content = lines(500)
    chunks = document_chunks(content)
    assert chunks[0].start_line == 1
    assert chunks[-1].end_line == 500
    assert set(content.split("\n")) - {""} == {line for chunk in chunks for line in chunk.text.split("\n")}


@pytest.mark.parametrize("text", ["x" * 20_000, "word " * 4000, "漢" * 5000, "😀" * 5000, "é" * 9999 + " a"])
def test_a_line_longer_than_a_chunk_is_cut_and_keeps_its_number(text):
    chunks = document_chunks(f"first\n{text}\nlast")
    assert len(chunks) > 5
    assert all(len(chunk.text.encode()) <= CHUNK_BYTES for chunk in chunks)
    assert {(chunk.start_line, chunk.end_line) for chunk in chunks[1:-1]} == {(2, 2)}
    assert set(text) <= set("".join(chunk.text for chunk in chunks))


def test_a_long_line_is_cut_between_words():
    text = " ".join(f"word{number}" for number in range(3000))
    found = {word for chunk in document_chunks(text) for word in chunk.text.split()}
    assert found == set(text.split())


def test_chunks_end_before_headings_where_they_can():
    sections = [f"## Section {number}\n{lines(12, number)}" for number in range(20)]
    chunks = document_chunks("".join(sections))
    numbered = "".join(sections).split("\n")
    assert all(numbered[chunk.end_line].startswith("## ") for chunk in chunks[:-1])


def test_chunks_end_after_blank_lines_where_there_are_no_headings():
    paragraphs = [lines(8, number) for number in range(30)]
    content = "\n".join(paragraphs)
    numbered = content.split("\n")
    assert all(numbered[chunk.end_line - 1] == "" for chunk in document_chunks(content)[:-1])


def test_appending_changes_only_the_last_chunk():
    content = lines(400)
    before, after = texts(content), texts(content + lines(30, seed=2, first=400))
    assert after[: len(before) - 1] == before[:-1]


@pytest.mark.parametrize("seed", range(10))
def test_after_an_insertion_at_the_top_most_chunks_are_as_they_were(seed):
    content = "\n".join(f"## Section {number}\n{lines(9, seed * 100 + number)}" for number in range(60))
    before, after = texts(content), texts("A new first line.\nAnd a second.\n" + content)
    assert len(set(before) - set(after)) <= len(before) // 3


def test_windows_line_ends_are_lines():
    (chunk,) = document_chunks("one\r\ntwo\r\n")
    assert (chunk.start_line, chunk.end_line) == (1, 2)


@pytest.mark.extended
def test_the_longest_document_is_cut_in_a_moment():
    started = time.process_time()
    document_chunks("x" * 500_000)
    document_chunks(lines(8000))
    document_chunks("\n" * 500_000)
    assert time.process_time() - started < 6
