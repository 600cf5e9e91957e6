"""Cuts excerpts: the parts of a found text around the matches, with the positions of the matches; pure.

Lengths and positions are counted in characters (code points) of the excerpt.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from core.text import ELLIPSIS, is_inside_sign
from memory.chunking import HEADING_END, HEADING_JOINT, UNSPACED, line_text

Highlight = tuple[int, int]
"""Start (inclusive) and end (exclusive)."""

EXCERPT_LENGTH = 500
# How far a cut may move to fall between two words.
LEEWAY = 30
# The number of matches that decide where a text is cut.
CONSIDERED = 200
# The number of words of the query that are searched; a longer query is a text and not a question.
MAX_WORDS = 64
# A word and its inflections nearly always begin alike.
STEM_LENGTH = 3

_WORD = re.compile(r"\w+")
_UNSPACED_PIECE = re.compile(rf"[{UNSPACED}]+")
_NUMBERED = re.compile(r"(?<!\w)(?=[^\s\"]{0,64}\d)\w+(?:[^\w\s\"]\w+)+")
_NEVER = r"(?!)"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """`highlights` are ascending and disjoint."""

    text: str
    highlights: list[Highlight]


@dataclass(frozen=True, slots=True)
class Matcher:
    """Finds the matches in a text: the literal query in any case, and these words in lower case."""

    literal: re.Pattern[str]
    likely: re.Pattern[str] | None
    words: frozenset[str] = frozenset()
    # Searching is the main cost of an excerpt, and a text is searched three times: for the matching side, the cut and
    # the marks.
    seen: dict[str, tuple[list[Highlight], list[Highlight]]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, query: str, *, exact: Sequence[str] = ()) -> "Matcher":
        """Without words yet: `candidates` names those of some texts that may be inflections of the query's. `exact`:
        quotations in it.
        """
        # No excerpt is longer, so neither is a literal match.
        query = query[:500].strip()
        pieces = sorted({query, *exact, *_pieces(query)}, key=lambda piece: (-len(piece), piece))
        # A line break in the text matches the spaces of a piece.
        either = "|".join(r"\s+".join(map(re.escape, piece.split())) for piece in pieces[:MAX_WORDS] if piece)
        literal = re.compile(either or _NEVER, re.IGNORECASE)
        beginnings = list(
            dict.fromkeys(word[: max(1, min(STEM_LENGTH, len(word) - 1))] for word in _WORD.findall(query))
        )[:MAX_WORDS]
        either = "|".join(re.escape(beginning) for beginning in beginnings)
        return cls(literal, re.compile(rf"\b(?:{either})\w*", re.IGNORECASE) if beginnings else None)

    def candidates(self, texts: Iterable[str]) -> set[str]:
        if self.likely is None:
            return set()
        return {word.lower() for text in texts for word in self.likely.findall(text)}

    def knowing(self, words: Iterable[str]) -> "Matcher":
        return Matcher(self.literal, self.likely, frozenset(words))

    def literals(self, text: str) -> list[Highlight]:
        """The positions of the literal query."""
        return self._look(text)[0]

    def spans(self, text: str) -> list[Highlight]:
        """The positions of the matches, ascending; touching or overlapping ones are joined."""
        return self._look(text)[1]

    def _look(self, text: str) -> tuple[list[Highlight], list[Highlight]]:
        if text not in self.seen:
            literals = [match.span() for match in self.literal.finditer(text)]
            likely = self.likely.finditer(text) if self.likely is not None and self.words else ()
            inflected = [match.span() for match in likely if match.group().lower() in self.words]
            united: list[Highlight] = []
            for start, end in sorted(literals + inflected):
                if united and start <= united[-1][1]:
                    united[-1] = (united[-1][0], max(united[-1][1], end))
                else:
                    united.append((start, end))
            self.seen[text] = literals, united
        return self.seen[text]


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the user's text between labels, in which matches are searched.

    `passage`: the position of the passage that is nearest to the query in meaning, in a long text. `headings`: those
    that it is under, shown if the excerpt begins after the last of them.
    """

    text: str
    before: str = ""
    after: str = ""
    passage: Highlight | None = None
    headings: str = ""

    @property
    def frame(self) -> int:
        return len(self.before) + len(self.after) + (len(self.headings) + len(HEADING_END) if self.headings else 0)


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of an excerpt from one segment: the label before it, and the segment's text with its matches.

    `headings`: those above the text that are not in it.
    """

    before: str
    own: Excerpt
    headings: str = ""


def own_words(pieces: Iterable[Piece]) -> str:
    """The words of the text itself, for comparing it with others."""
    return "\n".join(piece.own.text for piece in pieces)


def show(segments: Sequence[Segment], matcher: Matcher, *, length: int = EXCERPT_LENGTH) -> tuple[Excerpt, list[Piece]]:
    """One text and its pieces: one line or more per segment, at most `length` characters in all.

    A short segment leaves its rest to others.
    """
    room = length - sum(segment.frame for segment in segments) - max(0, len(segments) - 1)
    most = fair_limit([len(segment.text.strip()) for segment in segments], budget=room)
    text, highlights, pieces = "", list[Highlight](), list[Piece]()
    for segment in segments:
        own = cut(segment.text, matcher, length=most, passage=segment.passage)
        headings = "" if segment.headings.split(HEADING_JOINT)[-1] in own.text else segment.headings
        pieces.append(Piece(segment.before, own, headings))
        text += ("\n" if text else "") + segment.before + line_text("", headings)
        highlights += [(start + len(text), end + len(text)) for start, end in own.highlights]
        text += own.text + segment.after
    return Excerpt(text, highlights), pieces


def fair_limit(lengths: list[int], *, budget: int) -> int:
    """The maximum length of each text so that all together fit: short texts leave their rest to the others."""
    left = budget
    for position, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - position)
        if length > share:
            return share
        left -= length
    return budget


def matching(segments: Sequence[Segment], matcher: Matcher) -> list[Segment]:
    """The segments that match, in words or in meaning; if none does, all that are not blank."""
    written = [segment for segment in segments if segment.text.strip()]
    return [segment for segment in written if segment.passage or matcher.spans(segment.text)] or written


def cut(text: str, matcher: Matcher, *, length: int, passage: Highlight | None = None) -> Excerpt:
    """At most `length` characters of the text around its matches, from word to word; without a match, its beginning.

    The literal query is preferred to its words, and many matches to few. If the passage that is nearest in meaning has
    as many of the query's words as any other place, the excerpt shows it; without words it starts there.
    """
    left = len(text) - len(text.lstrip())
    text = text.strip()
    spans = matcher.spans(text)
    if len(text) <= length:
        return Excerpt(text, spans)
    requested = matcher.literals(text)
    if not requested and passage is not None:
        requested = _within(spans, (passage[0] - left, passage[1] - left), text, length)
    return _stretch(text, spans, *_window(text, requested or spans, length))


def _stretch(text: str, spans: Sequence[Highlight], start: int, end: int) -> Excerpt:
    """A part of a text with the matches that are in it; an ellipsis stands for what is left out."""
    before, after = ELLIPSIS if start else "", ELLIPSIS if end < len(text) else ""
    shift = len(before) - start
    inside = [
        (max(first, start) + shift, min(last, end) + shift) for first, last in spans if first < end and last > start
    ]
    return Excerpt(before + text[start:end] + after, inside)


def within_lines(excerpt: Excerpt, most: int) -> Excerpt:
    """At most this many lines of it that are not blank: those with the most matches, or the first; an ellipsis stands
    for the others.
    """
    text, lines, offset = excerpt.text, [], 0
    for line in text.split("\n"):
        if line.strip():
            lines.append((offset, offset + len(line)))
        offset += len(line) + 1
    if len(lines) <= most:
        return excerpt
    stretches = [(lines[first][0], lines[first + most - 1][1]) for first in range(len(lines) - most + 1)]
    matches = [sum(first < end and last > start for first, last in excerpt.highlights) for start, end in stretches]
    most_matches = max(matches)
    best = [first for first, count in enumerate(matches) if count == most_matches]
    # The first lines if they have as many; else the matches stand in the middle.
    return _stretch(text, excerpt.highlights, *stretches[best[len(best) // 2] if best[0] else 0])


def _within(spans: Sequence[Highlight], passage: Highlight, text: str, length: int) -> list[Highlight]:
    """What to show of the passage: its matches, or its beginning without any match; empty if another place has more of
    the words, because a place with the query's words is more useful than a similar place.

    A passage that is shorter than the excerpt, such as a line of a note, is shown whole in the middle. So the words
    around it count as well.
    """
    first, last = max(0, min(passage[0], len(text) - 1)), min(passage[1], len(text))
    if (room := length - (last - first)) > 0:
        inside = [span for span in spans if span[0] >= first - room // 2 and span[1] <= last + room // 2]
        return [(first, last)] if _distinct(inside, text) >= _words_together(spans[:CONSIDERED], text, length) else []
    inside = [span for span in spans if span[0] >= first and span[1] <= last]
    if not spans:
        return [(first, min(first + length, last))]
    in_passage, anywhere = (_words_together(those, text, length) for those in (inside, spans[:CONSIDERED]))
    return inside if in_passage >= anywhere else []


def _words_together(spans: Sequence[Highlight], text: str, length: int) -> int:
    """The largest number of the query's words in one place, each counted once in any inflection."""
    if not spans:
        return 0
    first, last = _densest(spans, length)
    return _distinct([(start, end) for start, end in spans if first <= start and end <= last], text)


def _distinct(spans: Iterable[Highlight], text: str) -> int:
    return len({text[start:end][:STEM_LENGTH].lower() for start, end in spans})


def _window(text: str, spans: Sequence[Highlight], length: int) -> Highlight:
    """The stretch to show, without counting ellipses."""
    first, last = _densest(spans[:CONSIDERED], length) if spans else (0, 0)
    room = length - 2 * len(ELLIPSIS)
    start = min(max(0, first - (room - min(last - first, room)) // 2), len(text) - room)
    if start <= len(ELLIPSIS):
        start = 0
    start = _word_start(text, start, limit=first) if start else 0
    room = length - len(ELLIPSIS) * (2 if start else 1)
    if len(text) - start <= room + len(ELLIPSIS):
        return start, len(text)
    return start, _word_end(text, start + room, limit=min(last, start + room))


def _densest(spans: Sequence[Highlight], length: int) -> Highlight:
    """From the first to the last of the matches that fit together; the first of the stretches with the most matches."""
    best: tuple[int, Highlight] = (0, spans[0])
    until = 0
    for index, (start, end) in enumerate(spans):
        until = max(until, index + 1)
        while until < len(spans) and spans[until][1] - start <= length // 2:
            until += 1
        if until - index > best[0]:
            best = (until - index, (start, max(end, spans[until - 1][1])))
    return best[1]


def _word_start(text: str, start: int, *, limit: int) -> int:
    """The next beginning of a word, if there is one near and before the match; else the next complete character."""
    if not text[start - 1].isspace():
        for index in range(start, min(start + LEEWAY, limit + 1)):
            if text[index - 1].isspace():
                start = index
                break
    while start < limit and (text[start].isspace() or is_inside_sign(text, start)):
        start += 1
    return start


def _word_end(text: str, end: int, *, limit: int) -> int:
    """The last end of a word, if there is one near and after the match; else the last complete character."""
    if not text[end].isspace():
        for index in range(end, max(end - LEEWAY, limit - 1), -1):
            if text[index].isspace():
                end = index
                break
    while end > limit and (text[end - 1].isspace() or is_inside_sign(text, end)):
        end -= 1
    return end


def _pieces(query: str) -> Iterator[str]:
    """The literal pieces of a query that are searched beside its words.

    In scripts without spaces, every stretch and every two to four characters of it, because nothing marks the ends of
    words; and pieces with digits and marks, such as an order number, which are no words.
    """
    for stretch in _UNSPACED_PIECE.findall(query):
        yield stretch
        # Scripts without spaces have words of two to four characters.
        for length in range(4, 1, -1):
            yield from (stretch[place : place + length] for place in range(len(stretch) - length + 1))
    yield from _NUMBERED.findall(query)
