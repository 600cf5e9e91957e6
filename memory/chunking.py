"""Cuts every text into passages, each of which gets a vector; indexing embeds them, and search takes the nearest.

A model reads some 250 tokens and a text is often longer, so a long turn becomes several passages. The first ones
contain only the user's message, because most searches are for that. The passages of the answer follow, each after the
beginning of the question, because an answer seldom names its subject. A short turn is one passage.

Together the passages cover every token, however long the text is. Each ends at the best place near its end (before a
heading, after a blank line, at the end of a line, of a sentence, of a word) and shares its last words with the next
one. A text is read page by page, so time grows with its length, and only one page of tokens is in memory.

The beginning of a long text answers most questions. So its passages come first and rank in full. Further passages wait
behind them in the queue, and count as a little farther from a query (docs/decisions/0047).
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import Literal, NamedTuple

TextStretch = tuple[int, int]
"""Start (inclusive) and end (exclusive), in characters."""
TokenOffsets = Callable[[str, int | None], list[TextStretch]]
"""As `Embedder.token_offsets`."""

# The version of the rules by which a turn is cut, and of those for a note. A change of the rules increments its own
# version; `index_missing` cuts the texts of other versions again.
CUTTING_RULES = 2
NOTE_CUTTING_RULES = 2

# Scripts without spaces: kana, Han with its extensions and compatibility forms, Thai to Lao, Burmese, Khmer.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)

USER_LABEL = "User: "
ASSISTANT_LABEL = "Assistant: "
# A passage of the answer repeats so many tokens of the question, enough for its topic, but no larger part of itself.
QUESTION_TOKENS, QUESTION_SHARE = 16, 4
# Consecutive passages share this many tokens, so that a sentence cut in two is nearly complete in one of them.
OVERLAP_TOKENS = 16
# This many passages of a message (2,000 tokens) and of an answer are not "further" passages.
MESSAGE_PASSAGES = 8
ANSWER_PASSAGES = 1
# The number of characters that are tokenised at a time.
PAGE = 8_192
# A longer token is data and not a word. A model reads it as one unknown word; here it counts as several of this length.
LONGEST_TOKEN, TOKEN_OF_DATA = 100, 4

_SENTENCE_ENDS = frozenset(".!?\u2026\u3002\uff01\uff1f")  # the last three end Chinese and Japanese sentences
_NO_BREAK, _WORD, _SENTENCE, _LINE, _ITEM, _PARAGRAPH, _HEADING = range(7)
# The end of a line with what follows it: blank lines, and the mark of a heading, of an item or of a block of code.
_LINE_END = re.compile(
    r"\n(?:[ \t]*(?P<blank>\n)\s*)?[ \t]*"
    r"(?P<mark>(?P<heading>#{1,6}[ ])|(?P<code>(?:```|~~~)\w)|(?:[-*+•]|\d{1,3}[.)])[ ])?"
)


class Side(IntEnum):
    """The part of a text that a passage belongs to. WHOLE: both sides of a short turn, as `turn_text` writes them."""

    WHOLE = 0
    USER = 1
    ASSISTANT = 2


class PassageSpan(NamedTuple):
    """The position of a passage: from `start` to before `end`, in characters of its side.

    `is_further`: it comes after the beginning of a long text.
    """

    side: Side
    start: int
    end: int
    is_further: bool = False


def turn_text(user_message: str, assistant_message: str) -> str:
    """Return a short turn as it is embedded; a blank side is left out."""
    sides = ((USER_LABEL, user_message), (ASSISTANT_LABEL, assistant_message))
    return "\n".join(label + message for label, message in sides if message.strip())


def turn_spans(
    user_message: str, assistant_message: str, *, token_offsets: TokenOffsets, max_tokens: int
) -> Iterator[PassageSpan]:
    """Yield the passages of a turn, each of at most `max_tokens` tokens with its labels; none of a blank turn."""
    message, answer = _Tokens(user_message, token_offsets), _Tokens(assistant_message, token_offsets)
    labels = _label_tokens(token_offsets)
    if message.count(max_tokens) + answer.count(max_tokens) + labels <= max_tokens:
        if whole := turn_text(user_message, assistant_message):
            yield PassageSpan(Side.WHOLE, 0, len(whole))
        return
    room = max_tokens - labels
    question_size = min(message.count(room), QUESTION_TOKENS, room // QUESTION_SHARE)
    for number, (start, end) in enumerate(message.stretches(room)):
        yield PassageSpan(Side.USER, start, end, number >= MESSAGE_PASSAGES)
    for number, (start, end) in enumerate(answer.stretches(room - question_size)):
        yield PassageSpan(Side.ASSISTANT, start, end, number >= ANSWER_PASSAGES)


def turn_passages(
    spans: Iterable[PassageSpan],
    user_message: str,
    assistant_message: str,
    *,
    token_offsets: TokenOffsets,
    max_tokens: int,
) -> Iterator[str]:
    """Yield the texts to embed for these passages of a turn."""
    question = ""
    for side, start, end, _ in spans:
        if side is Side.WHOLE:
            yield turn_text(user_message, assistant_message)
        elif side is Side.USER:
            yield turn_text(user_message[start:end], "")
        else:
            question = question or _question(user_message, token_offsets, max_tokens)
            yield turn_text(question, assistant_message[start:end])


def text_spans(text: str, *, token_offsets: TokenOffsets, max_tokens: int) -> Iterator[PassageSpan]:
    """Yield the passages of a text with one author; none of a blank one."""
    for start, end in _Tokens(text, token_offsets).stretches(max_tokens):
        yield PassageSpan(Side.USER, start, end)


def _question(user_message: str, token_offsets: TokenOffsets, max_tokens: int) -> str:
    """The beginning of the message, as it precedes each passage of the answer."""
    message, room = _Tokens(user_message, token_offsets), max_tokens - _label_tokens(token_offsets)
    size = min(QUESTION_TOKENS, room // QUESTION_SHARE)
    message.count(size)
    spans = message.spans[:size]
    return user_message[spans[0][0] : spans[-1][1]] if spans else ""


@lru_cache(maxsize=8)
def _label_tokens(token_offsets: TokenOffsets) -> int:
    """The number of tokens of the labels, computed once per model."""
    return len(token_offsets(turn_text("x", "x"), None)) - 2 * len(token_offsets("x", None))


class _Tokens:
    """A text and the positions of its next tokens, loaded in pages as needed."""

    def __init__(self, text: str, token_offsets: TokenOffsets) -> None:
        self.text = text
        self.spans: list[TextStretch] = []
        self._token_offsets = token_offsets
        self._read = 0

    def count(self, enough: int) -> int:
        """The number of remaining tokens, counted only up to a little more than `enough`."""
        while len(self.spans) <= enough and self._read < len(self.text):
            page = self.text[self._read : self._read + PAGE]
            if self._read + len(page) < len(self.text):
                # Between two words if there is a space, because a model's tokens end there.
                page = page[: max(page.rfind(" "), page.rfind("\n")) + 1 or PAGE]
            for start, end in self._token_offsets(page, None):
                first, last = start + self._read, end + self._read
                if last - first > LONGEST_TOKEN:
                    self.spans += [(at, min(at + TOKEN_OF_DATA, last)) for at in range(first, last, TOKEN_OF_DATA)]
                else:
                    self.spans.append((first, last))
            self._read += len(page)
        return len(self.spans)

    def stretches(self, size: int) -> Iterator[TextStretch]:
        """Yield overlapping stretches of at most `size` tokens that cover all tokens, cut at good places."""
        while self.count(size):
            end = self._cut(size)
            yield self.spans[0][0], self.spans[end - 1][1]
            del self.spans[: len(self.spans) if end == len(self.spans) else self._next_start(end)]

    def _cut(self, limit: int) -> int:
        """Return the token before which to cut: the best place in the last third, and the later of two equal ones."""
        if limit >= len(self.spans):
            return len(self.spans)
        earliest = limit - limit // 3
        if best := self._best_line_end(earliest, limit):
            return best
        best, best_break = limit, _NO_BREAK
        for index in range(limit, earliest - 1, -1):
            found = self._break_before(index)
            if found > best_break:
                best, best_break = index, found
                if found == _SENTENCE:
                    break
        return best

    def _best_line_end(self, earliest: int, limit: int) -> int | None:
        begin, end = self.spans[earliest - 1][1], self.spans[limit][0]
        best: tuple[int, int] | None = None
        # No mark at the beginning of a line is longer than eight characters.
        for found in _LINE_END.finditer(self.text, begin, end + 8):
            place = found.end() if found["mark"] is None else found.start("mark")
            index = bisect_left(self.spans, (place,), earliest, limit + 1)
            if found.start() < end and index <= limit:
                is_paragraph = found["blank"] or found["code"]
                otherwise = _PARAGRAPH if is_paragraph else _ITEM if found["mark"] else _LINE
                best = max(best or (0, 0), (_HEADING if found["heading"] else otherwise, index))
        return best and best[1]

    def _break_before(self, index: int) -> int:
        """The quality of a place for a cut within a line."""
        gap = self.text[self.spans[index - 1][1] : self.spans[index][0]]
        last = self.text[self.spans[index - 1][1] - 1]
        if last in _SENTENCE_ENDS and (gap or not last.isascii()):
            return _SENTENCE
        return _WORD if gap else _NO_BREAK

    def _next_start(self, end: int) -> int:
        """Step back by the overlap, to the beginning of a word, but always beyond the last start."""
        for index in range(max(1, end - OVERLAP_TOKENS), end):
            if self._break_before(index):
                return index
        return end


# A note lists facts, and a passage of twenty facts is near to no question about one of them. So each list item, table
# row and short paragraph is a passage of its own as well, read after the headings that it is under.

# About 60 words of English; fewer in scripts with more bytes a character.
LINE_BYTES = 400
# The innermost headings of a line are read with it, and of a long heading its beginning.
MOST_HEADINGS, HEADING_LENGTH = 4, 80
HEADING_JOINT, HEADING_END = " \u203a ", ": "

_FENCE = re.compile(r"[ \t]*(`{3}|~{3})")
_HEADING_MARK = re.compile(r" {0,3}(#{1,6})[ \t]+")
_ITEM_MARK = re.compile(r"([ \t]*)(?:[-*+•]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?")
_SENTENCE_END = re.compile(r"[.!?\u2026][\"')\]]*[ \t]+|[\u3002\uff01\uff1f]|\n")
_ANY_WORD = re.compile(r"\w+")
# An outline has the levels of headings and then, by indent, those of paragraphs (even) and of items (odd).
_FIRST_PARAGRAPH, _FIRST_ITEM = 8, 9


_Kind = Literal["heading", "paragraph", "item", "row", "table head"]


class NoteLine(NamedTuple):
    """A line of a note, from `start` to before `end` in characters, and the headings that it is read after."""

    start: int
    end: int
    headings: str


class _Block(NamedTuple):
    start: int
    end: int
    kind: _Kind
    level: int


def line_text(line: str, headings: str) -> str:
    """Return the line as it is embedded."""
    return f"{headings}{HEADING_END}{line}" if headings else line


def note_lines(text: str, *, title: str = "", least: int = 3) -> Iterator[NoteLine]:
    """Yield the list items, table rows and paragraphs of a Markdown text in order; of a longer one, its sentences.

    A heading is above what follows it, `title` above all; an item above those that are indented more; a paragraph that
    ends in a colon above the list after it; the first row of a table above the others. Code is in no line, and without
    a heading a line has at least so many words: fewer are no passage that could be searched for.
    """
    outline: list[tuple[int, str]] = [(0, title)] if title.strip() else []
    is_in_table = False
    for start, end, kind, level in _blocks(text):
        # What follows a table is not under its first row.
        above = level if kind == "row" or not is_in_table else min(level, _FIRST_PARAGRAPH)
        is_in_table = kind in ("row", "table head")
        while outline and outline[-1][0] >= above:
            outline.pop()
        own = " ".join(text[start:end].split())
        if kind not in ("heading", "table head"):
            headings = HEADING_JOINT.join(heading for _, heading in outline[-MOST_HEADINGS:])
            for first, last in _sentences(text, start, end):
                if headings or len(_ANY_WORD.findall(text[first:last])) >= least:
                    yield NoteLine(first, last, headings)
        if own and kind != "row" and (kind != "paragraph" or own.endswith(":")):
            outline.append((level, own[:HEADING_LENGTH].strip(" :*_`")))


def _blocks(text: str) -> list[_Block]:
    """The headings, paragraphs, list items and table rows, without their marks and without code."""
    blocks: list[_Block] = []
    fence, is_open, start = "", False, 0
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence or mark:
            # A block of code ends at the mark that it began with.
            fence = "" if mark and fence == mark[1] else fence or (mark[1] if mark else "")
            is_open = False
        elif not line.strip():
            is_open = False
        elif is_open and (last := _continued(blocks[-1], line, start)):
            blocks[-1] = last
            is_open = last.kind != "heading"
        elif block := _begun(line, start):
            blocks.append(block)
            is_open = block.kind != "heading"
        start += len(line) + 1
    return blocks


def _continued(last: _Block, line: str, start: int) -> _Block | None:
    """The last block together with this line, which has no blank line before it; None if the line begins another."""
    content = line.strip()
    if last.kind == "row":
        is_rule = set(content) <= set("|:- ") and "-" in content
        return last._replace(kind="table head", level=_FIRST_PARAGRAPH) if is_rule else None
    if last.kind == "paragraph" and set(content) in ({"="}, {"-"}):
        return last._replace(kind="heading", level=1 if "=" in content else 2)
    if last.kind == "table head" or content[0] == "|" or _HEADING_MARK.match(line) or _ITEM_MARK.match(line):
        return None
    return last._replace(end=start + len(line.rstrip()))


def _begun(line: str, start: int) -> _Block | None:
    """The block that this line begins; None for a rule."""
    end = start + len(line.rstrip())
    if heading := _HEADING_MARK.match(line):
        return _Block(
            start + heading.end(), start + len(line.rstrip().rstrip("#").rstrip()), "heading", len(heading[1])
        )
    content = line.strip()
    if set(content) <= set("-*_=|: "):
        return None
    if item := _ITEM_MARK.match(line):
        return _Block(start + item.end(), end, "item", _FIRST_ITEM + 2 * _width(item[1]))
    first = start + line.index(content)
    if content[0] == "|":
        cells = content.strip("| \t")
        return _Block(first + content.index(cells), first + content.index(cells) + len(cells), "row", _FIRST_ITEM)
    return _Block(first, end, "paragraph", _FIRST_PARAGRAPH + 2 * _width(line[: first - start]))


def _width(indent: str) -> int:
    return len(indent.expandtabs(4))


def _sentences(text: str, start: int, end: int) -> Iterator[TextStretch]:
    """The stretch as it is, or if it is too long for a line, as many of its sentences at a time as fit.

    A sentence that does not fit is left to the passages of the whole text.
    """
    if _is_short(text, start, end):
        yield start, end
        return
    first = last = start
    for place in [*(found.end() for found in _SENTENCE_END.finditer(text, start, end)), end]:
        if not _is_short(text, first, place):
            if last > first:
                yield first, first + len(text[first:last].rstrip())
            first = last if _is_short(text, last, place) else place
        last = place
    if last > first:
        yield first, last


def _is_short(text: str, start: int, end: int) -> bool:
    return len(text[start:end].encode()) <= LINE_BYTES
