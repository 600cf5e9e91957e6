"""Cuts every text into passages, each of which gets a vector; indexing embeds them, and search takes the nearest.

A model reads some 250 tokens and a text is often longer, so a long turn becomes several passages. The first ones
contain only the user's message, because most searches are for that. The passages of the answer follow, each after the
beginning of the question, because an answer seldom names its subject. A short turn is one passage.

Together the passages cover every token, however long the text is. Each ends at the best place near its end (before a
heading, after a blank line, at the end of a line, of a sentence, of a word) and shares its last words with the next
one. A text is read page by page, so time grows with its length, and only one page of tokens is in memory.

The beginning of a long text answers most questions. So its passages come first and rank in full. Further passages wait
behind them in the queue, and count as a little farther from a query (docs/decisions/0024).
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

TextStretch = tuple[int, int]
"""Start (inclusive) and end (exclusive), in characters."""
TokenOffsets = Callable[[str, int | None], list[TextStretch]]
"""As `Embedder.token_offsets`."""

# Incremented with every change of the cutting rules; `index_missing` cuts texts of other rules again.
CUTTING_RULES = 1

# Scripts without spaces: kana, Han with its extensions and compatibility forms, Thai to Lao, Burmese, Khmer.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)

USER_LABEL = "User: "
ASSISTANT_LABEL = "Assistant: "
# The maximum share of a passage for the repeated question: enough for its topic, and most is left for the answer.
QUESTION_SHARE = 4
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
_LONGEST_MARK = 8


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
    question_size = min(message.count(room), room // QUESTION_SHARE)
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
    message, size = _Tokens(user_message, token_offsets), (max_tokens - _label_tokens(token_offsets)) // QUESTION_SHARE
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
            self._read_page()
        return len(self.spans)

    def stretches(self, size: int) -> Iterator[TextStretch]:
        """Yield overlapping stretches of at most `size` tokens that cover all tokens, cut at good places."""
        while self.count(size):
            end = self._cut(size)
            yield self.spans[0][0], self.spans[end - 1][1]
            del self.spans[: len(self.spans) if end == len(self.spans) else self._next_start(end)]

    def _read_page(self) -> None:
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
        for found in _LINE_END.finditer(self.text, begin, end + _LONGEST_MARK):
            place = found.end() if found["mark"] is None else found.start("mark")
            index = bisect_left(self.spans, (place,), earliest, limit + 1)
            if found.start() < end and index <= limit:
                best = max(best or (0, 0), (_rank(found), index))
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


def _rank(line_end: re.Match[str]) -> int:
    if line_end["heading"]:
        return _HEADING
    if line_end["blank"] or line_end["code"]:
        return _PARAGRAPH
    return _ITEM if line_end["mark"] else _LINE
