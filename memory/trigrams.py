"""The trigram filter: finds the texts that contain a literal piece of text, such as code, a number or part of a word.

Each text has a Bloom filter with a bit for each stretch of three characters in it (and for each two, if one of them is
a digit or not ASCII: a number, a Chinese word). A text can contain a piece only if it has all of the piece's bits, so a
search skips nearly all others and reads only the remaining texts. Source: B. H. Bloom, Space/Time Trade-offs in Hash
Coding with Allowable Errors (1970), with a single hash.

Both sides of a comparison are folded: letter case, the amount of space between two words, and the compatibility form of
a letter (full width, composed or not) do not matter.
"""

import unicodedata
from collections.abc import Iterator
from itertools import islice

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from intake.models import Turn
from memory.models.corpora import Corpus, Key, Scope

# Powers of two. An index entry has room for 2,704 bytes; a text of more than some 5,000 different stretches fills the
# longest so much that it is looked at more often than it need be.
LENGTHS = tuple(1 << power for power in range(8, 15))
LONGEST_BITS = 14
# The bits for each stretch: of four texts without a stretch one has its bit by chance, of 64 one has three bits.
BITS_A_STRETCH = 3.5

FIRST_BEYOND_ASCII = 128
# Odd numbers of 64 bits: multiplied by them, characters are spread over the high bits, which are a position in the
# longest.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)[:, np.newaxis]
_SHIFT = np.uint64(64 - LONGEST_BITS)

# The number of texts that are read at a time: a short list of hits, if most of them do contain the piece.
AT_ONCE = 50
# No filter can find one or two letters, and most texts contain them: only this many of the newest are read.
MOST_READ_FOR_A_SHORT_PIECE = 2_000

_POSSIBLE = """
SELECT source_id, chunk_index
  FROM indexed_texts
 WHERE user_id = %(user_id)s AND corpus = %(chat)s AND said_at >= %(since)s AND said_at < %(until)s {narrowed}
 ORDER BY said_at DESC, source_id, chunk_index {bounded}
"""


def fold(text: str) -> str:
    """The form in which texts and pieces are compared."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return " ".join(plain.casefold().split())


def trigram_filter(*texts: str) -> str:
    """The filter of all the texts together, in hexadecimal after an x; its length depends on their size."""
    # One text with a mark between both sides: with two texts, all further work would be done twice.
    occurs = _occurring("\0".join(map(fold, texts)))
    return _as_bits(occurs, _length(int(np.count_nonzero(occurs))))


def masks(piece: str) -> dict[int, str]:
    """For each length of a filter, the bits that it has if its text contains the piece; none for a piece that is too
    short.
    """
    occurs = _occurring(fold(piece))
    return {length: _as_bits(occurs, length) for length in LENGTHS} if occurs.any() else {}


def _length(stretches: int) -> int:
    return next((length for length in LENGTHS if length >= BITS_A_STRETCH * stretches), LENGTHS[-1])


def _occurring(folded: str) -> NDArray[np.bool_]:
    """The longest filter, with a bit for each stretch."""
    if folded.isascii():
        # Looked up and not computed: most texts are such, and a request waits while they are saved.
        codes = np.frombuffer(folded.encode(), np.uint8)
        first, second, third = (places[codes] for places in _PLACES_OF_ASCII)
        is_telling = _TELLING_IN_ASCII[codes]
    else:
        beyond = np.frombuffer(folded.encode("utf-32-le", "surrogatepass"), np.uint32)
        first, second, third = _places(beyond)
        is_telling = _is_telling(beyond)
    occurs = np.zeros(1 << LONGEST_BITS, np.bool_)
    occurs[first[:-2] ^ second[1:-1] ^ third[2:]] = True
    if is_telling.any():
        occurs[(first[:-1] ^ third[1:])[is_telling[:-1] | is_telling[1:]]] = True
    return occurs


def _places(codes: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """The share of each character in a trigram's position as its first, second or third: a row for each."""
    return (codes * _FACTORS >> _SHIFT).astype(np.uint16)


def _is_telling(codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    is_digit: NDArray[np.bool_] = (codes >= ord("0")) & (codes <= ord("9"))
    return (codes >= FIRST_BEYOND_ASCII) | is_digit


_ASCII = np.arange(FIRST_BEYOND_ASCII, dtype=np.uint32)
_PLACES_OF_ASCII = _places(_ASCII)
_TELLING_IN_ASCII = _is_telling(_ASCII)


def _as_bits(occurs: NDArray[np.bool_], length: int) -> str:
    """A shorter filter is the longest one folded, so that a stretch has one position for every length."""
    together = occurs.size // length
    # Several truth values at once, as one number, if there is a number of that size.
    wide = min(together, np.uint64().itemsize)
    bits = occurs.view(f"u{wide}").reshape(length, -1).any(axis=1) if together > wide else occurs.view(f"u{wide}") != 0
    return "x" + np.packbits(bits).tobytes().hex()


def containing(scope: Scope, *, text: str, limit: int) -> list[Key]:
    """The newest turns in `scope` one side of which contains `text`, in any case; every character is literal.

    Shorter than three letters, it is searched in the newest 2,000 turns.
    """
    piece = fold(text)
    if not piece or "\0" in piece or Corpus.CHAT not in scope.corpora:
        return []
    return list(islice(_confirmed(scope, piece), limit))


def _confirmed(scope: Scope, piece: str) -> Iterator[Key]:
    possible = _possible(scope, piece)
    for start in range(0, len(possible), AT_ONCE):
        keys = possible[start : start + AT_ONCE]
        turns = Turn.objects.for_user(scope.user).with_keys(keys)
        containing = {
            (turn.conversation_id, turn.turn_number)
            for turn in turns
            if piece in fold(turn.user_message) or piece in fold("" if turn.is_recall else turn.assistant_message)
        }
        yield from (key for key in keys if key in containing)


def _possible(scope: Scope, piece: str) -> list[Key]:
    """The turns whose filter has all of the piece's bits, the newest first."""
    by_length = masks(piece)
    # Comparing two bit strings would need padding: each length has its own mask.
    cases = " ".join(f"WHEN {length} THEN signature & %(m{length})s::varbit = %(m{length})s" for length in by_length)
    statement = _POSSIBLE.format(
        narrowed=f"AND CASE length(signature) {cases} END" if by_length else "",
        bounded="" if by_length else f"LIMIT {MOST_READ_FOR_A_SHORT_PIECE}",
    )
    parameters = {f"m{length}": mask for length, mask in by_length.items()}
    with connection.cursor() as cursor:
        cursor.execute(statement, {**scope.parameters(), **parameters, "chat": Corpus.CHAT})
        return [(source_id, chunk_index) for source_id, chunk_index in cursor.fetchall()]
