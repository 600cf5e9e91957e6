"""Decides which stretches of a turn get a vector of their own; indexing embeds them, search takes the nearest one.

A model reads some 250 tokens and an answer is often longer. So a long turn becomes several parts: what the person said,
alone, for most searches are for that; then the beginning of the answer, behind the beginning of the question, for an
answer seldom says by itself what it is about. A short turn is one part. Words find what has no vector.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from memory.embedders.base import Span

TokenOffsets = Callable[[str, int | None], list[Span]]
"""As `Embedder.token_offsets`."""

# Scripts without spaces: kana, Han with its extensions and compatibility forms, Thai to Lao, Burmese, Khmer.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)

USER_LABEL = "User: "
ASSISTANT_LABEL = "Assistant: "
# The share of a part that the repeated question may take: enough for its topic, and most is left for the answer.
QUESTION_SHARE = 4
# Consecutive stretches share this many tokens, so that a sentence cut in two is whole in one of them, or nearly.
OVERLAP_TOKENS = 16
# What somebody pastes is theirs to find again, up to 2,000 tokens of it. Of an answer one stretch does as well as all
# of them, with a third of the vectors: see docs/decisions/0003.
MESSAGE_STRETCHES = 8
ANSWER_STRETCHES = 1
# The most parts a turn can have.
MAX_PARTS = MESSAGE_STRETCHES + ANSWER_STRETCHES
# As many stretches of the built-in model's window hold the longest text that has one author and is not chunked: a
# memory record of 32,000 characters. In Chinese each is a token, and a stretch brings 154 new ones at least.
TEXT_STRETCHES = 208

_SENTENCE_ENDS = frozenset(".!?\u2026\u3002\uff01\uff1f")  # the last three end Chinese and Japanese sentences
_NO_BREAK, _WORD, _SENTENCE, _LINE = range(4)


@dataclass(frozen=True)
class _Tokens:
    """A text and where its tokens lie."""

    text: str
    spans: list[Span]

    def __len__(self) -> int:
        return len(self.spans)

    def slice(self, start: int, end: int) -> str:
        """The text of the tokens from `start` up to `end`; none if there are none."""
        if start == end:
            return ""
        return self.text[self.spans[start][0] : self.spans[end - 1][1]]

    def break_before(self, index: int) -> int:
        """How good a place it is to cut before the token: a line's end, a sentence's, a word's or none."""
        gap = self.text[self.spans[index - 1][1] : self.spans[index][0]]
        if "\n" in gap:
            return _LINE
        last = self.text[self.spans[index - 1][1] - 1]
        if last in _SENTENCE_ENDS and (gap or not last.isascii()):
            return _SENTENCE
        return _WORD if gap else _NO_BREAK


def turn_text(user_message: str, assistant_message: str) -> str:
    """Return the turn as it is embedded when it is short; a side that is blank is left out."""
    sides = ((USER_LABEL, user_message), (ASSISTANT_LABEL, assistant_message))
    return "\n".join(label + message for label, message in sides if message.strip())


def turn_parts(user_message: str, assistant_message: str, *, token_offsets: TokenOffsets, max_tokens: int) -> list[str]:
    """Return the texts to embed for a turn, each of at most `max_tokens` tokens; none for a blank turn."""
    labels = _label_tokens(token_offsets)
    message = _beginning(user_message, MESSAGE_STRETCHES, token_offsets, max_tokens)
    answer = _beginning(assistant_message, ANSWER_STRETCHES, token_offsets, max_tokens)
    whole = turn_text(user_message, assistant_message)
    if len(message) + len(answer) + labels <= max_tokens:
        return [whole] if whole else []
    room = max_tokens - labels
    parts = [turn_text(stretch, "") for stretch in _stretches(message, room, MESSAGE_STRETCHES)]
    question_size = min(len(message), room // QUESTION_SHARE)
    question = message.slice(0, question_size)
    stretches = _stretches(answer, room - question_size, ANSWER_STRETCHES)
    return parts + [turn_text(question, stretch) for stretch in stretches]


@lru_cache(maxsize=8)
def _label_tokens(token_offsets: TokenOffsets) -> int:
    """How much of a window the labels take, asked of each model once."""
    return len(token_offsets(turn_text("x", "x"), None)) - 2 * len(token_offsets("x", None))


def text_parts(text: str, *, token_offsets: TokenOffsets, max_tokens: int) -> list[str]:
    """Return the texts to embed for a text with one author: the whole, or stretches of it; none for a blank one."""
    return _stretches(_beginning(text, TEXT_STRETCHES, token_offsets, max_tokens), max_tokens, TEXT_STRETCHES)


def _beginning(text: str, stretches: int, token_offsets: TokenOffsets, max_tokens: int) -> _Tokens:
    """As much of a text as is looked at; the one token more tells that there is more."""
    return _Tokens(text, token_offsets(text, stretches * max_tokens + 1))


def _stretches(tokens: _Tokens, size: int, most: int) -> list[str]:
    """Cut into overlapping stretches of at most `size` tokens, at good places; no more than `most`, from the start."""
    found: list[str] = []
    start = end = 0
    while end < len(tokens) and len(found) < most:
        end = _cut(tokens, start, start + size)
        found.append(tokens.slice(start, end))
        start = _next_start(tokens, start, end)
    return found


def _cut(tokens: _Tokens, start: int, limit: int) -> int:
    """Return the best end: of the last third's places the best, and the later of two as good."""
    if limit >= len(tokens):
        return len(tokens)
    earliest = limit - (limit - start) // 3
    best, best_break = limit, -1
    # No place can be better than these, so most of them need not be looked at.
    best_there_is = _LINE if "\n" in tokens.slice(earliest - 1, limit + 1) else _SENTENCE
    for index in range(limit, earliest - 1, -1):
        found = tokens.break_before(index)
        if found > best_break:
            best, best_break = index, found
            if found == best_there_is:
                break
    return best


def _next_start(tokens: _Tokens, start: int, end: int) -> int:
    """Step back by the overlap, on to a word's beginning, and always ahead of the last start."""
    for index in range(max(start + 1, end - OVERLAP_TOKENS), end):
        if tokens.break_before(index):
            return index
    return end
