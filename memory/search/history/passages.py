"""A text that was found, in the parts it is shown in, and the excerpt that is made of them; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from memory.search.history.excerpts import Excerpt, Matcher, Span, cut

EXCERPT_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of text between words of ours, in which nothing is looked for."""

    text: str
    before: str = ""
    after: str = ""

    @property
    def frame(self) -> int:
        return len(self.before) + len(self.after)


@dataclass(frozen=True, slots=True)
class Piece:
    """What an excerpt shows of one part: the words of ours before it, and the part's own with its matches."""

    before: str
    own: Excerpt


@dataclass(frozen=True, slots=True)
class Shown:
    """An excerpt as one text, and the pieces that it is made of."""

    excerpt: Excerpt
    pieces: list[Piece]

    @property
    def own_words(self) -> str:
        """Those in it that are the text's own, by which it is compared with others."""
        return "\n".join(piece.own.text for piece in self.pieces)


def show(parts: Sequence[Part], matcher: Matcher, *, length: int = EXCERPT_LENGTH) -> Shown:
    """One line or more for each part, together at most `length` characters; a short part leaves its room to others."""
    room = length - sum(part.frame for part in parts) - max(0, len(parts) - 1)
    sizes = _dealt([len(part.text.strip()) for part in parts], room)
    cuts = [cut(part.text, matcher, length=size) for part, size in zip(parts, sizes, strict=True)]
    text = ""
    highlights: list[Span] = []
    for part, excerpt in zip(parts, cuts, strict=True):
        text += ("\n" if text else "") + part.before
        highlights += [(start + len(text), end + len(text)) for start, end in excerpt.highlights]
        text += excerpt.text + part.after
    pieces = [Piece(part.before, excerpt) for part, excerpt in zip(parts, cuts, strict=True)]
    return Shown(Excerpt(text, highlights), pieces)


def matching(parts: Sequence[Part], matcher: Matcher) -> list[Part]:
    """The parts that have a match; all that are not blank when none has, since then their meaning was the match."""
    written = [part for part in parts if part.text.strip()]
    return [part for part in written if matcher.spans(part.text)] or written


def _dealt(wishes: Sequence[int], room: int) -> list[int]:
    """What each gets of the room: the smallest first, each at most an equal share of what is left."""
    sizes = [0] * len(wishes)
    for place, index in enumerate(sorted(range(len(wishes)), key=lambda index: wishes[index])):
        sizes[index] = min(wishes[index], room // (len(wishes) - place))
        room -= sizes[index]
    return sizes
