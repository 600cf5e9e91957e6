"""The trigram filter: finds the texts that contain a literal piece of text, such as code, a number or part of a word.

Each text has a Bloom filter with a bit for each stretch of three characters in it (and for each two, if one of them is
a digit or not ASCII: a number, a Chinese word; and for each single one that is not ASCII: a Chinese letter, an emoji).
A text can contain a piece only if it has all of the piece's bits, so a
search skips nearly all others and reads only the remaining texts. Source: B. H. Bloom, Space/Time Trade-offs in Hash
Coding with Allowable Errors (1970), with a single hash.

Both sides of a comparison are folded: letter case, accents, the amount of space between two words, and the
compatibility form of a letter (full width, composed or not) do not matter. A text whose letters have other forms is in
the filter as it is written too, because a piece with such letters is first searched as it is written (`written`).
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import compress, islice

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from memory.index.sources import READERS, SourceKey, Text
from memory.models.documents import HIDDEN_SOURCES, Corpus, Hit, Scope

# Powers of two. A text of more than some 5,000 different stretches fills the longest so much that it is looked at more
# often than it need be.
LENGTHS = tuple(1 << power for power in range(8, 15))
LONGEST_BITS = 14

FIRST_BEYOND_ASCII = 128
# Odd numbers of 64 bits: multiplied by them, characters are spread over the high bits, which are a position in the
# longest.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)[:, np.newaxis]

# Texts, each with the pieces that it can contain.
Possible = list[tuple[Hit, list[str]]]

# The number of texts that are read at a time: a short list of hits, if most of them do contain the piece.
AT_ONCE = 50

# One scan for all pieces: which of them each text can contain. `newest`: for pieces that no filter can find.
_POSSIBLE = """
WITH newest AS MATERIALIZED (
    SELECT id
      FROM indexed_texts
     WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND said_at >= %(since)s AND said_at < %(until)s
       AND (%(only)s::uuid[] IS NULL OR source_id = ANY(%(only)s::uuid[])) AND source_id NOT IN ({hidden_sources})
     ORDER BY said_at DESC, source_id, chunk_index
     LIMIT %(newest)s
)
SELECT source_id, chunk_index, corpus, date_part('epoch', said_at), can_have
  FROM (SELECT source_id, chunk_index, corpus, said_at, ARRAY[{conditions}] AS can_have
          FROM indexed_texts
         WHERE user_id = %(user_id)s AND corpus = ANY(%(corpora)s) AND said_at >= %(since)s AND said_at < %(until)s
           AND (%(only)s::uuid[] IS NULL OR source_id = ANY(%(only)s::uuid[])) AND source_id NOT IN ({hidden_sources})
        OFFSET 0) AS text  -- no filter is compared twice
 WHERE true = ANY(can_have)
 ORDER BY said_at DESC, source_id, chunk_index
"""


# In these scripts a mark is an accent; in others, such as Devanagari or Thai, it is a vowel.
_WITH_ACCENTS = ("LATIN", "GREEK", "CYRILLIC", "ARABIC", "HEBREW")
# Letters of their own that are often written without their mark, because the keyboard lacks them.
_PLAIN = {"ß": "ss", "ẞ": "SS", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D"}
_PLAIN |= {"þ": "th", "Þ": "Th", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ħ": "h", "Ħ": "H", "\u0131": "i"}
# The letters of these scripts beyond ASCII, and the marks that are combined with them.
_ACCENTED = r"\u00c0-\u06ff\u1ab0-\u1aff\u1dc0-\u1fff\u20d0-\u20ff\ufe20-\ufe2f"
_HAS_ACCENT = re.compile(rf"(?<!\S)[^\s{_ACCENTED}]*+[{_ACCENTED}]\S*+")
_IS_ACCENT = re.compile(rf"[{_ACCENTED}]")


# As they are typed.
_PLAIN_MARKS = str.maketrans(dict.fromkeys("\u2018\u2019\u02bc", "'") | dict.fromkeys("\u201c\u201d\u201e", '"'))


def fold(text: str) -> str:
    """The form in which texts and pieces are compared."""
    if text.isascii():
        return " ".join(text.casefold().split())
    plain = without_accents(unicodedata.normalize("NFKC", text)).translate(_PLAIN_MARKS)
    return " ".join(plain.casefold().split())


def written(text: str) -> str:
    """The form that keeps accents, ligatures and indices as they are written: K₂ is not K2."""
    plain = text if text.isascii() else unicodedata.normalize("NFC", text)
    # Folding the case would take a ligature apart.
    return " ".join(plain.lower().split())


def without_accents(text: str) -> str:
    """For scripts with accents; marks after letters of other scripts stay."""
    return _HAS_ACCENT.sub(
        lambda word: unicodedata.normalize("NFC", "".join(_plain_characters(unicodedata.normalize("NFD", word[0])))),
        text,
    )


def _plain_characters(decomposed: str) -> list[str]:
    plain: list[str] = []
    # A piece may begin within a letter, of which it has the accent alone.
    has_accents = True
    for character in decomposed:
        if not unicodedata.combining(character):
            has_accents = unicodedata.name(character, "").startswith(_WITH_ACCENTS)
            plain.append(_PLAIN.get(character, character))
        elif not has_accents or not _IS_ACCENT.match(character):
            plain.append(character)
    return plain


def trigram_filter(*texts: str) -> str:
    """The filter of all the texts together, in hexadecimal after an x; its length depends on their size."""
    # One text with a mark between both sides: with two texts, all further work would be done twice.
    folded = "\0".join(map(fold, texts))
    if not folded.isascii() or not all(map(str.isascii, texts)):
        as_written = "\0".join(map(written, texts))
        folded = folded if as_written == folded else f"{folded}\0{as_written}"
    occurs = _occurring(folded)
    stretches = int(np.count_nonzero(occurs))
    # With 3.5 bits a stretch, one of four texts without a stretch has its bit by chance, and one of 64 three bits.
    return _as_bits(occurs, next((length for length in LENGTHS if length >= 3.5 * stretches), LENGTHS[-1]))


def masks(piece: str) -> dict[int, str]:
    """For each length of a filter, the bits that it has if its text contains the piece; none for a piece that is too
    short. The piece is `fold`ed, or as it is `written`.
    """
    occurs = _occurring(piece)
    return {length: _as_bits(occurs, length) for length in LENGTHS} if occurs.any() else {}


def _occurring(folded: str) -> NDArray[np.bool_]:
    """The longest filter, with a bit for each stretch."""
    if folded.isascii():
        # Looked up and not computed: most texts are such, and a request waits while they are saved.
        codes = np.frombuffer(folded.encode(), np.uint8)
        alone = np.zeros(0, np.uint16)
        first, second, third = (places[codes] for places in _PLACES_OF_ASCII)
        is_telling = _TELLING_IN_ASCII[codes]
    else:
        beyond = np.frombuffer(folded.encode("utf-32-le", "surrogatepass"), np.uint32)
        first, second, third = _places(beyond)
        is_telling = _is_telling(beyond)
        alone = second[beyond >= FIRST_BEYOND_ASCII]
    occurs = np.zeros(1 << LONGEST_BITS, np.bool_)
    occurs[first[:-2] ^ second[1:-1] ^ third[2:]] = True
    if is_telling.any():
        occurs[(first[:-1] ^ third[1:])[is_telling[:-1] | is_telling[1:]]] = True
    occurs[alone] = True
    return occurs


def _places(codes: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """The share of each character in a trigram's position as its first, second or third: a row for each."""
    return (codes * _FACTORS >> np.uint64(64 - LONGEST_BITS)).astype(np.uint16)


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


def containing(
    scope: Scope,
    *,
    texts: Sequence[str],
    limit: int,
    as_written: bool = False,
    is_word: bool = False,
    speaker: str | None = None,
) -> list[list[Hit]]:
    """For each of `texts`, the newest texts in `scope` one side of which contains it, in any case; every character is
    literal. All of them together cost one scan.

    `as_written`: only with its accents, ligatures and indices. `is_word`: not within a longer word. `speaker`: only on
    the side of `me` or of the `assistant`. One or two ASCII characters are searched in the newest 2,000 texts.
    """
    form = written if as_written else fold
    pieces = [form(text) for text in texts]
    searched = [piece for piece in dict.fromkeys(pieces) if piece and "\0" not in piece]
    if not searched:
        return [[] for _ in texts]
    found: dict[str, list[Hit]] = {piece: [] for piece in searched}
    around = r"(?<![\w-]){}(?![\w-])" if is_word else "{}"
    patterns = {piece: re.compile(around.format(re.escape(piece))) for piece in searched}
    # Those that can contain a piece of which too few texts are found yet, the newest first.
    possible = (each for each in _possible(scope, searched) if any(len(found[piece]) < limit for piece in each[1]))
    while batch := list(islice(possible, AT_ONCE)):
        read = texts_of(scope, [hit for hit, _ in batch])
        by_key = {(text.key.source_id, text.key.chunk_index): text for text in read}
        for hit, can_have in batch:
            if (text := by_key.get(hit.key)) is not None:
                said = "" if speaker == "assistant" else form(text.said)
                answered = "" if speaker == "me" else form(text.answered)
                for piece in can_have:
                    has = patterns[piece].search
                    if len(found[piece]) < limit and (has(said) or has(answered)):
                        found[piece].append(hit)
    return [found.get(piece, []) for piece in pieces]


def texts_of(scope: Scope, hits: Sequence[Hit]) -> Iterator[Text]:
    """One query for each corpus; more texts than these of a document, which has several."""
    keys: dict[Corpus, list[SourceKey]] = defaultdict(list)
    for hit in hits:
        keys[Corpus(hit.corpus)].append(SourceKey(scope.user.pk, Corpus(hit.corpus), *hit.key))
    for corpus, of_corpus in keys.items():
        reader = READERS[corpus]
        for row in reader.rows_of(of_corpus).filter(user=scope.user):
            yield from reader.entry(row).texts


def _possible(scope: Scope, pieces: Sequence[str]) -> Possible:
    """The texts whose filter has all bits of a piece, the newest first, each with these pieces."""
    conditions: list[str] = []
    parameters: dict[str, str] = {}
    for number, piece in enumerate(pieces):
        by_length = masks(piece)
        names = {length: f"p{number}m{length}" for length in by_length}
        # Comparing two bit strings would need padding: each length has its own mask.
        cases = " ".join(f"WHEN {at} THEN signature & %({name})s::varbit = %({name})s" for at, name in names.items())
        conditions.append(
            f"coalesce(CASE length(signature) {cases} END, false)" if by_length else "id IN (TABLE newest)"
        )
        parameters |= {names[length]: mask for length, mask in by_length.items()}
    is_short = any(not condition.startswith("coalesce") for condition in conditions)
    # No filter can find one or two letters, and most texts contain them: only some of the newest are read.
    newest = 2_000 if is_short else 0
    statement = _POSSIBLE.format(conditions=", ".join(conditions), hidden_sources=HIDDEN_SOURCES)
    with connection.cursor() as cursor:
        cursor.execute(statement, {**scope.parameters(), **parameters, "newest": newest})
        return [
            (
                Hit((source_id, chunk_index), corpus, datetime.fromtimestamp(at, UTC), shares_terms=True),
                list(compress(pieces, can_have)),
            )
            for source_id, chunk_index, corpus, at, can_have in cursor.fetchall()
        ]
