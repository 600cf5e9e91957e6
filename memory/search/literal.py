"""The literal retriever: the texts that contain the query as it stands, or exact pieces of it, such as an order number.

Terms find words, and vectors meaning; this finds half a word, a sign or a line of code. Both searches rank what it
found by the same rules: no merely similar text is above a literal match, and texts with an exact piece come first.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from memory.index.trigrams import containing, fold, written
from memory.models.documents import Hit, Key, Scope

# Texts that contain a literal piece of the query: several times the largest limit.
LITERAL = 100
# A query's exact pieces beyond these are left out, and the answer says so.
MOST_PIECES = 8
# The whole query is an exact piece, like a name, if at most this many texts contain it; otherwise it is a common word.
FEW = 3
# The score of a text that contains the query literally, if no text is similar to it.
LITERAL_ALONE = 0.5

_QUOTED = re.compile(r'"([^"]+)"|“([^“”]+)”|„([^„“”]+)[“”]|«([^«»]+)»')
# A file's name, and an amount with its unit: 10mg, 24-hour.
_FILE = re.compile(r"(?<![\w.-])[\w.-]*\w\.[a-zA-Z]\w{1,4}")
_AMOUNT = re.compile(r"\d[\d.,]*-?[^\W\d_]+")

PIECES_LEFT_OUT = f"Of the quotations and identifiers only the first {MOST_PIECES} were searched literally, not: {{}}"
NO_TIME_FOR_PIECES = "The quotations and identifiers could not be searched literally in time"


@dataclass(frozen=True)
class LiteralHits:
    """`whole`: the texts with the whole query, at most a hundred, the newest first. `pieces`: the same for each of its
    exact pieces. `left_out`: the exact pieces that were not searched.
    """

    whole: Sequence[Hit] = ()
    pieces: Sequence[Sequence[Hit]] = ()
    left_out: Sequence[str] = ()
    is_whole_exact: bool = False

    @cached_property
    def hits(self) -> dict[Key, Hit]:
        return {hit.key: hit for found in (self.whole, *self.pieces) for hit in found}

    @cached_property
    def exact(self) -> Counter[Key]:
        """How many exact pieces each text contains: quoted text, identifiers, or the whole query if few contain it."""
        is_exact = self.is_whole_exact or len(self.whole) <= FEW
        return Counter(hit.key for found in (*self.pieces, self.whole if is_exact else ()) for hit in found)


def find_literal(scope: Scope, *, query: str) -> LiteralHits:
    """One scan; a second one if the query has accents, ligatures or indices, for the texts that have them too."""
    searched, left_out = searched_pieces(query)
    pieces = [query, *(piece for piece in searched if piece != query)]
    whole, *others = containing(scope, texts=pieces, limit=LITERAL)
    if written(query) != fold(query):
        (as_written,) = containing(scope, texts=[query], limit=LITERAL, as_written=True)
        whole = as_written or whole
    return LiteralHits(whole, others, left_out, is_whole_exact=query in searched)


def with_literal(relevances: Mapping[Key, float], literal: Collection[Key]) -> dict[Key, float]:
    """The relevance of every text that either way found, 0 to 1.

    A literal match counts as much again as the best text without one. So among texts of the same age no merely similar
    one is above a literal match, and the engine orders the literal matches. A literal match that the engine does not
    find (half a word, a piece of code) has only that value.
    """
    having = set(literal)
    merely_alike = {key: relevance for key, relevance in relevances.items() if key not in having}
    worth = max(merely_alike.values(), default=0.0) or LITERAL_ALONE
    return merely_alike | {key: 1 - (1 - relevances.get(key, 0.0)) * (1 - worth) for key in having}


def searched_pieces(query: str) -> tuple[list[str], list[str]]:
    """The exact pieces that are searched, and those beyond `MOST_PIECES` that are left out."""
    pieces = list(dict.fromkeys(exact_pieces(query)))
    return pieces[:MOST_PIECES], pieces[MOST_PIECES:]


def exact_pieces(query: str) -> list[str]:
    """The literal pieces of a query: quotations and identifiers."""
    quoted = ["".join(groups) for groups in _QUOTED.findall(query)]
    words = [word.strip(".,;:!?()[]{}'") for word in _QUOTED.sub(" ", query).split()]
    return [piece for piece in map(str.strip, quoted) if piece] + [word for word in words if _is_identifier(word)]


def _is_identifier(word: str) -> bool:
    """An order number, an error code, an e-mail address, a file, a name_with_underscores; not an amount or a date."""
    if "://" in word or "@" in word[1:-1] or "_" in word[1:-1] or _FILE.fullmatch(word):
        return True
    letters, digits = sum(map(str.isalpha, word)), sum(map(str.isdigit, word))
    return letters > 0 and digits > 0 and letters + digits > 3 and not _AMOUNT.fullmatch(word)  # noqa: PLR2004
