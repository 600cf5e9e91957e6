"""Writes texts that were found within a budget of tokens: a short one whole, of a longer one the sentences that have
the question's rare words, with their neighbours.

Every tool, recall mode and the chat's own model read results that are written here. Pure: the caller supplies texts.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log
from typing import NamedTuple, TypeVar

from core.text import ELLIPSIS, shortened
from intake.llm.tokens import tokens_of
from memory.search.echoes import STEM, are_forms, telling_words, words_of
from memory.search.excerpts import Segment

T = TypeVar("T")

# A text of at most so many tokens is written whole; a longer one is cut to the second number.
WHOLE, CUT = 250, 150
# Tokens between two texts.
BETWEEN = 2
# A sentence or a line; of a longer one a part, to the end of a word if there is one.
_SENTENCE = re.compile(
    r"\S(?:[^\n]{0,160}?(?:[.!?\u2026](?=\s)|[\u3002\uff01\uff1f]|$)|[^\n]{0,160}(?=\s)|[^\n]{0,99})", re.MULTILINE
)


@dataclass(frozen=True)
class Rarity:
    """Weighs the words of a question by how few of the texts at hand have them."""

    weights: dict[str, float]
    known: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, query: str, texts: Iterable[str]) -> "Rarity":
        rarity = cls(dict.fromkeys(telling_words(query), 0.0))
        found = [rarity.shared(text) for text in texts]
        for word in rarity.weights:
            count = sum(word in words for words in found)
            rarity.weights[word] = log((len(found) + 1) / (count + 0.5)) if count else 0.0
        return rarity

    def shared(self, text: str) -> set[str]:
        """The words of the question that the text has in any inflection. Most sentences have none, seen first."""
        if not self._beginnings.search(text):
            return set()
        words = words_of(text)
        for word in words.keys() - self.known.keys():
            self.known[word] = next((each for each in self.weights if are_forms(each, word)), None)
        return {like for word in words if (like := self.known[word]) is not None}

    @cached_property
    def _beginnings(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(word[:STEM]) for word in self.weights) or r"(?!)", re.IGNORECASE)


def within(
    budget: int | None,
    results: Sequence[T],
    *,
    write: Callable[[T, Sequence[T]], str],
    name: Callable[[T], str],
    beside: Iterable[str] = (),
) -> list[str]:
    """The results that fit beside other texts, the best first, and a last line that counts the others and names the
    first of them; all of them if there is no budget.

    `write(result, before)` makes the text of a result, after others. Of the first one the longest lines are cut if it
    does not fit, so that no budget is too small for any result.
    """
    shown: list[T] = []
    if budget is None:
        return [write(result, shown) for result in results]
    texts: list[str] = []
    last_line = max(30, min(60, budget // 6))
    left = budget - last_line - sum(tokens_of(text) + BETWEEN for text in beside)
    for result in results:
        text = write(result, shown)
        while not shown and tokens_of(text) + BETWEEN > left and len(line := max(text.split("\n"), key=len)) > 80:
            text = text.replace(line, shortened(line, len(line) * 3 // 4))
        if (size := tokens_of(text) + BETWEEN) <= left:
            left -= size
            shown.append(result)
            texts.append(text)
    if names := [name(result) for result in results if result not in shown]:
        count = f"{len(names)} more {'does' if len(names) == 1 else 'do'} not fit in {budget:,} tokens (maxTokens)"
        last, left = f"Note: {count}", left + last_line
        for number, each in enumerate(names):
            longer = f"{last}{', ' if number else ': '}{each}"
            if tokens_of(longer) + BETWEEN > left:
                break
            last = longer
        texts.append(f"{last}.")
    return texts


def written(sides: Sequence[Segment], rarity: Rarity, budget: int) -> list[str]:
    """The sides of a text, each after its label; without those that are blank or of which nothing is chosen.

    `budget`: that of the whole list; no text takes more than a half of it.
    """
    sides = [side for side in sides if side.text.strip()]
    sizes = [tokens_of(side.text) for side in sides]
    whole, room = min(WHOLE, budget // 2), min(CUT, budget // 3)
    if sum(sizes) <= whole:
        return [side.before + side.text.strip() for side in sides]
    shown = []
    if len(sides) > 1 and sizes[0] <= whole:
        # A message says what it is about in few words; half of it is seldom enough (BEAM: 11 of 100 shown, now 37).
        shown, room = [sides[0].before + sides[0].text.strip()], max(0, room - sizes[0])
        sides, sizes = sides[1:], sizes[1:]
    sentences = [
        _Sentence(number, *found.span(), sizes[number] * len(found[0]) / len(side.text))
        for number, side in enumerate(sides)
        for found in _SENTENCE.finditer(side.text)
    ]
    chosen = _chosen(sentences, sides, rarity, room=room)
    for number, side in enumerate(sides):
        if own := [sentences[place] for place in sorted(chosen) if sentences[place].side == number]:
            shown.append(side.before + _joined(side.text, own))
    return shown


class _Sentence(NamedTuple):
    side: int
    start: int
    end: int
    tokens: float


def _chosen(sentences: Sequence[_Sentence], sides: Sequence[Segment], rarity: Rarity, *, room: float) -> set[int]:
    """The places of the sentences that are written: first those with the question's rarest words, each word once, or in
    the passage that is nearest in meaning; then their neighbours and the beginning.
    """
    nearest = {
        place
        for place, (side, start, end, _) in enumerate(sentences)
        if (passage := sides[side].passage) is not None and passage[0] <= start and end <= passage[1]
    }
    words = [rarity.shared(sides[side].text[start:end]) for side, start, end, _ in sentences]
    chosen: set[int] = set()
    # What the passage nearest in meaning counts, beside the question's rarest word.
    left, near = dict(rarity.weights), 0.5 * max(rarity.weights.values(), default=1.0)

    def gain(place: int) -> float:
        return sum(left[word] for word in words[place]) + near * (place in nearest)

    open_ = sorted(range(len(sentences)), key=lambda place: -gain(place))[:50]
    while open_:
        best = max(open_, key=gain)
        open_.remove(best)
        if gain(best) <= 0:
            break
        if sentences[best].tokens <= room:
            chosen.add(best)
            room -= sentences[best].tokens
            left |= {word: left[word] / 4 for word in words[best]}
    beside = [place + step for distance in (1, 2) for place in sorted(chosen) for step in (distance, -distance)]
    for place in [*beside, *range(len(sentences))]:
        if 0 <= place < len(sentences) and place not in chosen and sentences[place].tokens <= room:
            chosen.add(place)
            room -= sentences[place].tokens
    return chosen


def _joined(text: str, sentences: Sequence[_Sentence]) -> str:
    """The text of these sentences, with an ellipsis where others are left out."""
    parts, end = [], 0
    for sentence in sentences:
        gap = text[end : sentence.start]
        parts.append((" " if end else "") * bool(gap.strip()) + ELLIPSIS + " " if gap.strip() else gap if end else "")
        parts.append(text[sentence.start : sentence.end])
        end = sentence.end
    return "".join(parts) + (ELLIPSIS if text[end:].strip() else "")
