"""Cuts a document into chunks of consecutive lines, which are indexed and found with their line numbers.

The chunks depend only on the content, not on the embedding model. So they need not be stored, and the terms and every
model's vectors refer to the same chunks. A cut depends only on the text near it: an append leaves all earlier chunks
unchanged, and after a change further up the cuts soon return to their old places.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

# In English a token is about four bytes. Other scripts use more bytes per character, and also more tokens.
TOKEN_BYTES = 4
CHUNK_BYTES = 400 * TOKEN_BYTES
OVERLAP_BYTES = 80 * TOKEN_BYTES

_INSIDE_LINE, _LINE, _PARAGRAPH, _HEADING = range(4)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a document with its lines, numbered from 1, the last included."""

    text: str
    start_line: int
    end_line: int


class _Piece(NamedTuple):
    """A line with its end, or a part of a line that is longer than the overlap; `size` in bytes."""

    text: str
    line: int
    starts_line: bool
    size: int


def document_chunks(content: str) -> list[Chunk]:
    """The chunks in order, each of about 400 tokens, with about 80 in common with the previous one.

    A chunk ends before a heading, after a blank line, or at the end of a line: at the best of these in its second half.
    A line is cut only if it is longer than a chunk, or for the overlap. Blank text has no chunk.
    """
    pieces = _pieces(content)
    # total[i]: the bytes before piece i.
    total = [0, *accumulate(piece.size for piece in pieces)]
    chunks: list[Chunk] = []
    start = end = 0
    while end < len(pieces):
        end = _end(pieces, total, start, end)
        text = "".join(piece.text for piece in pieces[start:end])
        if text.strip():
            chunks.append(Chunk(text.rstrip("\n"), pieces[start].line, pieces[end - 1].line))
        # No piece is longer than the overlap, so the next chunk has room for at least one more.
        start = bisect_left(total, total[end] - OVERLAP_BYTES)
    return chunks


def _end(pieces: list[_Piece], total: list[int], start: int, covered: int) -> int:
    """The piece before which to cut, after the ones already `covered`."""
    limit = bisect_right(total, total[start] + CHUNK_BYTES) - 1
    if limit >= len(pieces):
        return len(pieces)
    earliest = max(covered + 1, bisect_left(total, total[start] + CHUNK_BYTES // 2))
    return max(range(earliest, limit + 1), key=lambda index: (_break_before(pieces, index), index))


def _break_before(pieces: list[_Piece], index: int) -> int:
    """The quality of a place for a cut."""
    if not pieces[index].starts_line:
        return _INSIDE_LINE
    if pieces[index].text.startswith("#"):
        return _HEADING
    return _LINE if pieces[index - 1].text.strip() else _PARAGRAPH


def _pieces(content: str) -> list[_Piece]:
    lines = content.removesuffix("\n").split("\n") if content else []
    return [
        _Piece(text, number, index == 0, len(text.encode()))
        for number, line in enumerate(lines, start=1)
        for index, text in enumerate(_cut(line + "\n"))
    ]


def _cut(line: str) -> list[str]:
    """The line in parts that fit the overlap, cut after a space if there is one."""
    stretches = []
    start = 0
    while len((ahead := line[start : start + OVERLAP_BYTES + 1]).encode()) > OVERLAP_BYTES:
        room = ahead.encode()[:OVERLAP_BYTES].decode(errors="ignore")
        length = room.rfind(" ") + 1 or len(room)
        stretches.append(line[start : start + length])
        start += length
    return [*stretches, line[start:]]
