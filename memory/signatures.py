"""What lets a search for a piece of text pass over the texts that cannot contain it: a Bloom filter for each text.

A text's signature has a bit for each stretch of three characters in it (and for each two, where one of them is a
digit or not ASCII: a number, a Chinese word). A text contains a piece only if it has all of the piece's bits; whether
it does is then read in the text. The source: B. H. Bloom, Space/Time Trade-offs in Hash Coding with Allowable Errors
(1970), with a single hash.

Both sides of a comparison are folded: letter case, and how much space is between two words, do not matter.
"""

import numpy as np
from numpy.typing import NDArray

# Powers of two. An index entry has room for 2,704 bytes; a text of more than some 5,000 different stretches fills the
# longest so much that it is looked at more often than it need be.
LENGTHS = tuple(1 << power for power in range(8, 15))
LONGEST_BITS = 14
# So many bits for each stretch: of four texts without a stretch one has its bit all the same, of 64 one has three bits.
BITS_A_STRETCH = 3.5

FIRST_BEYOND_ASCII = 128
# Odd numbers of 64 bits: multiplied by them, characters spread over the high bits, which are a place in the longest.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)[:, np.newaxis]
_SHIFT = np.uint64(64 - LONGEST_BITS)


def fold(text: str) -> str:
    """As both a text and a piece are compared."""
    return " ".join(text.casefold().split())


def signature(*texts: str) -> str:
    """The signature of all the texts together, in hexadecimal after an x; its length goes by how much is in them."""
    # One text with a mark between both sides: for two, all that follows would be done twice.
    occurs = _occurring("\0".join(map(fold, texts)))
    return _as_bits(occurs, _length(int(np.count_nonzero(occurs))))


def masks(piece: str) -> dict[int, str]:
    """By a signature's length, the bits it has if its text contains the piece; none for a piece too short to tell."""
    occurs = _occurring(fold(piece))
    return {length: _as_bits(occurs, length) for length in LENGTHS} if occurs.any() else {}


def _length(stretches: int) -> int:
    return next((length for length in LENGTHS if length >= BITS_A_STRETCH * stretches), LENGTHS[-1])


def _occurring(folded: str) -> NDArray[np.bool_]:
    """The longest signature, where each stretch has its bit."""
    if folded.isascii():
        # Looked up, not computed: most texts are such, and somebody waits while they are saved.
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
    """What each character adds to the place of a stretch in which it stands first, second or third: a row for each."""
    return (codes * _FACTORS >> _SHIFT).astype(np.uint16)


def _is_telling(codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    is_digit: NDArray[np.bool_] = (codes >= ord("0")) & (codes <= ord("9"))
    return (codes >= FIRST_BEYOND_ASCII) | is_digit


_ASCII = np.arange(FIRST_BEYOND_ASCII, dtype=np.uint32)
_PLACES_OF_ASCII = _places(_ASCII)
_TELLING_IN_ASCII = _is_telling(_ASCII)


def _as_bits(occurs: NDArray[np.bool_], length: int) -> str:
    """A shorter signature is the longest one folded, so that a stretch has one place whatever the length."""
    together = occurs.size // length
    # Several truth values at once, as one number, where there is a number of that size.
    wide = min(together, np.uint64().itemsize)
    bits = occurs.view(f"u{wide}").reshape(length, -1).any(axis=1) if together > wide else occurs.view(f"u{wide}") != 0
    return "x" + np.packbits(bits).tobytes().hex()
