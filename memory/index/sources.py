"""The texts to index: a reader per corpus, and the chunks of a document.

Reads the texts to index: one reader per corpus.

Texts stay in their own tables: turns, documents and records. A reader says which rows are indexed and how each one
reads. No other code depends on the number of corpora.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, time
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, QuerySet

from core.ids import time_of_id
from intake.models import Attachment, AttachmentText, Turn, User
from intake.models.conversations import OPEN, with_pairs
from memory.backends.embedders import Embedder
from memory.chunking import (
    CUTTING_RULES,
    LINE_BYTES,
    NOTE_CUTTING_RULES,
    NoteLine,
    PassageSpan,
    Side,
    line_text,
    note_lines,
    text_spans,
    turn_passages,
    turn_spans,
)
from memory.models import Corpus, Embedding, IndexedText, MemoryDocument, MemoryRecord
from memory.models.documents import Place

# The chunks depend only on the content, not on the embedding model. So they need not be stored, and the terms and every
# model's vectors refer to the same chunks. A cut depends only on the text near it: an append leaves all earlier chunks
# unchanged, and after a change further up the cuts soon return to their old places.

# 400 and 80 tokens of English, of about four bytes each. Other scripts use more bytes per character, and also more
# tokens.
CHUNK_BYTES, OVERLAP_BYTES = 1_600, 320

_INSIDE_LINE, _LINE, _PARAGRAPH, _HEADING = range(4)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of a document, from the character `start`, with its lines, numbered from 1, the last included."""

    text: str
    start: int
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
    # The characters before each piece.
    begins = [0, *accumulate(len(piece.text) for piece in pieces)]
    start = end = 0
    while end < len(pieces):
        end = _end(pieces, total, start, end)
        text = "".join(piece.text for piece in pieces[start:end])
        if text.strip():
            chunks.append(Chunk(text.rstrip("\n"), begins[start], pieces[start].line, pieces[end - 1].line))
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


ONLY_CHUNK = 0
# A subquery and not a join, because workers lock the turns that they read.
REGISTERED = User.objects.filter(is_visitor=False).values("pk")


@dataclass(frozen=True, slots=True)
class SourceKey(Place):
    """The place of one text: for chat the conversation and the turn number, for a document the number of the chunk, for
    an attachment that of the part.
    """

    chunk_index: int


def key_of(row: Embedding | IndexedText) -> SourceKey:
    return SourceKey(row.user_id, Corpus(row.corpus), row.source_id, row.chunk_index)


@dataclass(frozen=True, slots=True)
class Text:
    """The present text of each side. A text with one author has nothing on the assistant's side."""

    key: SourceKey
    said_at: datetime
    said: str
    answered: str = ""
    lines: Sequence[NoteLine] = ()
    """Of a note: the lines that have a passage of their own."""

    def columns(self) -> dict[str, Any]:
        """The columns of every index row that describe its text."""
        return {**asdict(self.key), "said_at": self.said_at}


@dataclass(frozen=True, slots=True)
class Entry:
    """The texts that are indexed together: any other row at their place in the index is stale."""

    place: Place
    texts: Sequence[Text]


def _spans(text: Text, embedder: Embedder) -> Iterator[PassageSpan]:
    """First the passages that together cover the text, then its lines."""
    spans = list(text_spans(text.said, token_offsets=embedder.token_offsets, max_tokens=embedder.max_tokens))
    yield from spans
    of_text = {(span.start, span.end) for span in spans}
    yield from (span for span in line_spans(text) if (span.start, span.end) not in of_text)


def _passages(text: Text, spans: Iterable[PassageSpan], embedder: Embedder) -> Iterator[str]:
    """A line's passage comes after its headings."""
    headings = {(line.start, line.end): line.headings for line in text.lines}
    for _, start, end, _ in spans:
        passage = text.said[start:end]
        above = headings.get((start, end))
        yield passage if above is None else _fitting(line_text(passage, above), embedder)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """How the texts of one corpus are read from their own table."""

    corpus: Corpus
    columns: Mapping[str, str]
    """The fields of a row that identify its texts in the index: for `source_id` and, if needed, `chunk_index`."""
    rows: Callable[[], QuerySet[Any, Any]]
    """All rows to index."""
    rows_of: Callable[[Iterable[SourceKey]], QuerySet[Any, Any]]
    """Those of `rows` that contain the texts with these keys; fewer if some were deleted."""
    entry: Callable[[Any], Entry]
    """The texts of a row."""
    cutting_rules: int = NOTE_CUTTING_RULES
    """The version of the rules by which its texts are cut into passages."""
    spans: Callable[[Text, Embedder], Iterator[PassageSpan]] = _spans
    """The positions of a text's passages for this model."""
    passages: Callable[[Text, Iterable[PassageSpan], Embedder], Iterator[str]] = _passages
    """The texts that this model embeds for these passages."""


def _turns() -> QuerySet[Turn, Any]:
    """Completed turns of registered users."""
    ended = Turn.objects.filter(user__in=REGISTERED, is_temporary=False)
    return ended.exclude(status__in=OPEN)


def _documents(corpus: Corpus) -> QuerySet[MemoryDocument, Any]:
    """The daily logs, or all other documents; an empty one has nothing to index."""
    filled = MemoryDocument.objects.filter(kind__in=MemoryDocument.Kind.in_corpus(corpus)).exclude(content="")
    # Only the user's time zone, which is all that a worker may read.
    own = [field.name for field in MemoryDocument._meta.concrete_fields if field.name != "user"]
    return filled.select_related("user").only(*own, "user__time_zone")


def _of_rows(corpus: Corpus, rows: Callable[[], QuerySet[Any, Any]], entry: Callable[[Any], Entry]) -> Reader:
    """The reader of documents or records, whose texts are named by the row's id."""

    def rows_of(keys: Iterable[SourceKey]) -> QuerySet[Any, Any]:
        return rows().filter(pk__in={key.source_id for key in keys})

    return Reader(corpus=corpus, columns={"source_id": "pk"}, rows=rows, rows_of=rows_of, entry=entry)


def _parts_of_files() -> QuerySet[AttachmentText, Any]:
    """Of files that a message of a registered user names, outside temporary chats."""
    named = claimed(Attachment.objects.filter(user=OuterRef("user"), pk=OuterRef("attachment")))
    return AttachmentText.objects.filter(Exists(named), user__in=REGISTERED)


def claimed(attachments: QuerySet[Attachment, Any]) -> QuerySet[Attachment, Any]:
    """Those of them that belong to a message outside temporary chats."""
    kept = Turn.objects.filter(
        user=OuterRef("user"),
        conversation=OuterRef("conversation_id"),
        turn_number=OuterRef("turn_number"),
        is_temporary=False,
    )
    return attachments.filter(Exists(kept))


def load(keys: Iterable[SourceKey]) -> Iterator[Text]:
    """The texts that still exist, with one query per corpus; deleted texts are left out."""
    by_corpus: dict[Corpus, set[SourceKey]] = defaultdict(set)
    for key in keys:
        by_corpus[key.corpus].add(key)
    for corpus, requested in by_corpus.items():
        reader = READERS[corpus]
        for row in reader.rows_of(requested):
            yield from (text for text in reader.entry(row).texts if text.key in requested)


def cut(text: Text, embedder: Embedder) -> Iterator[tuple[PassageSpan, str]]:
    """The passages for this model, which together cover the text: their positions and texts."""
    spans = list(READERS[text.key.corpus].spans(text, embedder))
    return zip(spans, passages_of(text, spans, embedder), strict=True)


def passages_of(text: Text, spans: Iterable[PassageSpan], embedder: Embedder) -> Iterator[str]:
    """The texts of these passages for the model, without cutting the whole text again."""
    return READERS[text.key.corpus].passages(text, spans, embedder)


def _fitting(passage: str, embedder: Embedder) -> str:
    """The beginning that the model reads: only a line of no words, with its headings, has more tokens than fit."""
    # No model has more tokens than bytes.
    if len(passage.encode()) <= embedder.max_tokens:
        return passage
    offsets = embedder.token_offsets(passage, embedder.max_tokens + 1)
    return passage if len(offsets) <= embedder.max_tokens else passage[: offsets[embedder.max_tokens - 1][1]]


def line_spans(text: Text) -> list[PassageSpan]:
    return [PassageSpan(Side.USER, line.start, line.end) for line in text.lines]


def headings_of(text: Text, span: PassageSpan) -> str:
    """The headings that this passage is read after: of a line, else none."""
    return next((line.headings for line in text.lines if line[:2] == (span.start, span.end)), "")


def turn_entry(turn: Turn) -> Entry:
    """The text of a turn with an owner; without an answer that only quotes the user's own history."""
    place = turn_place(turn)
    answered = "" if turn.is_recall else turn.assistant_message
    return Entry(place, [Text(place, turn.said_at, turn.user_message, answered)])


def turn_place(turn: Turn) -> SourceKey:
    if turn.user_id is None:
        raise ValueError("A turn without an owner is not indexed.")
    return SourceKey(turn.user_id, Corpus.CHAT, turn.conversation_id, turn.turn_number)


def document_entry(document: MemoryDocument) -> Entry:
    """All of a document's texts."""
    said_at = document.updated_at
    if document.date is not None:
        # Noon of a log's day is that day in every nearby time zone.
        said_at = datetime.combine(document.date, time(12), document.user.zone)
    chunks = document_chunks(document.content)
    lines = _lines_by_chunk(chunks, note_lines(document.content, title=document.title))
    place = document_place(document)
    return Entry(
        place,
        [
            Text(SourceKey(place.user_id, place.corpus, place.source_id, index), said_at, chunk.text, lines=of_chunk)
            for index, (chunk, of_chunk) in enumerate(zip(chunks, lines, strict=True))
        ],
    )


def _lines_by_chunk(chunks: Sequence[Chunk], lines: Iterable[NoteLine]) -> list[list[NoteLine]]:
    """The lines of each chunk, by their positions in it. A line that two chunks have in common is the earlier one's;
    one that is complete in none is left to the passages of the chunks.
    """
    by_chunk: list[list[NoteLine]] = [[] for _ in chunks]
    index = 0
    for line in lines:
        while index < len(chunks) and line.end > chunks[index].start + len(chunks[index].text):
            index += 1
        if index < len(chunks) and line.start >= (shift := chunks[index].start):
            by_chunk[index].append(NoteLine(line.start - shift, line.end - shift, line.headings))
    return by_chunk


def document_place(document: MemoryDocument) -> Place:
    return Place(document.user_id, document.corpus, document.pk)


def record_entry(record: MemoryRecord) -> Entry:
    place, content = record_place(record), record.content
    lines = list(note_lines(content)) if len(content.encode()) > LINE_BYTES else []
    return Entry(place, [Text(place, record.created_at, content, lines=lines)])


def record_place(record: MemoryRecord) -> SourceKey:
    return SourceKey(record.user_id, Corpus.RECORD, record.pk, ONLY_CHUNK)


def attachment_entry(part: AttachmentText) -> Entry:
    """A part of a file, as of the time when it was attached, which its id tells without another query."""
    place = SourceKey(part.user_id, Corpus.ATTACHMENT, part.attachment_id, part.number)
    return Entry(place, [Text(place, time_of_id(part.attachment_id), part.text)])


READERS: Mapping[Corpus, Reader] = {
    reader.corpus: reader
    for reader in (
        Reader(
            corpus=Corpus.CHAT,
            columns={"source_id": "conversation_id", "chunk_index": "turn_number"},
            rows=_turns,
            rows_of=lambda keys: Turn.objects.with_keys((key.source_id, key.chunk_index) for key in keys).filter(
                user__in=REGISTERED
            ),
            entry=turn_entry,
            cutting_rules=CUTTING_RULES,
            spans=lambda text, embedder: turn_spans(
                text.said, text.answered, token_offsets=embedder.token_offsets, max_tokens=embedder.max_tokens
            ),
            passages=lambda text, spans, embedder: turn_passages(
                spans, text.said, text.answered, token_offsets=embedder.token_offsets, max_tokens=embedder.max_tokens
            ),
        ),
        _of_rows(Corpus.MEMORY, partial(_documents, Corpus.MEMORY), document_entry),
        _of_rows(Corpus.DAILY_LOG, partial(_documents, Corpus.DAILY_LOG), document_entry),
        _of_rows(Corpus.RECORD, MemoryRecord.objects.all, record_entry),
        # Each part of a file is a text by itself: there may be thousands in one file.
        Reader(
            corpus=Corpus.ATTACHMENT,
            columns={"source_id": "attachment", "chunk_index": "number"},
            rows=_parts_of_files,
            rows_of=lambda keys: _parts_of_files().filter(
                with_pairs("attachment_id", "number", ((key.source_id, key.chunk_index) for key in keys))
            ),
            entry=attachment_entry,
        ),
    )
}


def content_hash(text: str) -> bytes:
    """BLAKE2b-128: 16 bytes that show whether a passage has changed since its vector was requested."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
