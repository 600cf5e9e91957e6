"""Whether a result only repeats a better one; pure, and quick enough for every pair of fifty results.

The overlap is the share of the words of the worse text that stand in a run of three or more words which the better one
has as well, in the same order. So a copied passage counts in whatever surroundings, a changed word costs itself
and no more, and two texts that merely use the same common words have no overlap. A text of less than three words
overlaps with none but its equal. A text with a number that the better one lacks says something else (another price,
another flight), however alike the rest is. Words are compared without regard to case or width; the scripts that are
written without spaces count by the character.
"""

import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property

RUN = 3

# Kana, Han with its extensions and compatibility forms, Thai to Lao, Burmese, Khmer.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


@dataclass(frozen=True)
class Fingerprint:
    """A text as it is compared."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Fingerprint":
        plain = unicodedata.normalize("NFKC", text).casefold()
        # What has no words at all, such as emoji, is compared by its characters.
        return cls(tuple(_WORD.findall(plain)) or tuple("".join(plain.split())))

    @cached_property
    def runs(self) -> frozenset[tuple[str, ...]]:
        return frozenset(self._run(start) for start in range(len(self.words) - RUN + 1))

    @cached_property
    def numbers(self) -> frozenset[str]:
        return frozenset(word for word in self.words if any(character.isdigit() for character in word))

    def share_in(self, better: "Fingerprint") -> float:
        """How much of this text `better` has: 0 to 1."""
        if self.words == better.words:
            return 1.0
        if self.runs.isdisjoint(better.runs) or not self.numbers <= better.numbers:
            return 0.0
        covered = bytearray(len(self.words))
        for start in range(len(self.words) - RUN + 1):
            if self._run(start) in better.runs:
                covered[start : start + RUN] = b"\1" * RUN
        return sum(covered) / len(covered)

    def _run(self, start: int) -> tuple[str, ...]:
        return self.words[start : start + RUN]
