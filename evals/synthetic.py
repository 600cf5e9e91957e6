"""Made-up turns in the shape of real ones, for benchmarks: the same for the same seed, on every machine.

Lengths are log-normal: a person's message has 150 characters at the median, an answer 1,200 with a tail to 8,000. Words
follow Zipf's law over 20,000: the commonest are English, the rest is pronounceable and made up, so that the embedding
model's tokenizer has about as much to do as with real text (three to four characters to a token).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MESSAGE_MEDIAN, MESSAGE_SPREAD, MESSAGE_LIMITS = 150, 0.9, (12, 2_000)
ANSWER_MEDIAN, ANSWER_SPREAD, ANSWER_LIMITS = 1_200, 0.8, (20, 8_000)
VOCABULARY_SIZE = 20_000
# Mandelbrot's shift: without it the first word alone would be a tenth of all text.
RANK_SHIFT = 2.7
SENTENCE_WORDS = 13
AT_ONCE = 256

COMMON_WORDS = Path(__file__).parent / "datasets" / "common_words.txt"

ONSETS = (*"bcdfghjlmnprstvw", "bl", "br", "ch", "cr", "dr", "fl", "gr", "pl", "pr", "qu", "sh", "sl", "st", "th", "tr")
VOWELS = (*"aeiou", "ai", "ea", "ee", "ou")
CODAS = ("", "", "l", "m", "n", "nd", "nt", "r", "rd", "rn", "s", "ss", "st", "t", "ck")
ENDINGS = ("", "", "", "s", "ed", "er", "ing", "ly", "ment", "tion", "al", "ous")

_WORD = re.compile("[a-z]+")


@dataclass(frozen=True, slots=True)
class SyntheticTurn:
    user_message: str
    assistant_message: str


def turns(count: int, *, seed: int = 0, answer_length: int | None = None) -> Iterator[SyntheticTurn]:
    """`count` turns; those of another seed are others. `answer_length`: of every answer, in characters."""
    rng = np.random.default_rng(seed)
    for start in range(0, count, AT_ONCE):
        size = min(AT_ONCE, count - start)
        messages = _texts(rng, _lengths(rng, size, MESSAGE_MEDIAN, MESSAGE_SPREAD, MESSAGE_LIMITS))
        usual = _lengths(rng, size, ANSWER_MEDIAN, ANSWER_SPREAD, ANSWER_LIMITS)
        answers = _texts(rng, usual if answer_length is None else np.full(size, answer_length))
        yield from map(SyntheticTurn, messages, answers)


def queries(count: int, *, seed: int = 0, words: int = 5) -> list[str]:
    """Questions of so many words, some 12 tokens each."""
    drawn = np.random.default_rng([seed, 1]).choice(VOCABULARY_SIZE, size=(count, words), p=probabilities())
    return [" ".join(row) + "?" for row in vocabulary()[drawn]]


def words_in(text: str) -> list[int]:
    """The text's words in order, by their places in the vocabulary; other words are left out."""
    return [place for word in _WORD.findall(text.lower()) if (place := _places().get(word)) is not None]


def _lengths(
    rng: np.random.Generator, size: int, median: int, spread: float, limits: tuple[int, int]
) -> NDArray[np.int64]:
    return np.clip(rng.lognormal(np.log(median), spread, size), *limits).astype(np.int64)


def _texts(rng: np.random.Generator, lengths: NDArray[np.int64]) -> list[str]:
    """A text of about each length: words are drawn for all at once, and dealt out in turn."""
    # With its space a word has more than five characters on average, so that these are always enough.
    drawn = vocabulary()[rng.choice(VOCABULARY_SIZE, size=int(lengths.sum()) // 4 + AT_ONCE, p=probabilities())]
    # How many characters are written after each word.
    ends = np.cumsum(np.char.str_len(drawn) + 1)
    texts, first = [], 0
    for length in lengths:
        begun = ends[first - 1] if first else 0
        last = int(np.searchsorted(ends, begun + length))
        texts.append(_sentences(drawn[first : last + 1].tolist()))
        first = last + 1
    return texts


def _sentences(words: list[str]) -> str:
    sentences = (words[start : start + SENTENCE_WORDS] for start in range(0, len(words), SENTENCE_WORDS))
    return " ".join(" ".join(sentence).capitalize() + "." for sentence in sentences)


@lru_cache(maxsize=1)
def vocabulary() -> NDArray[np.str_]:
    """All the words there are, the commonest first."""
    rng = np.random.default_rng(20_000)
    words = dict.fromkeys(COMMON_WORDS.read_text().split())
    while len(words) < VOCABULARY_SIZE:
        syllables = rng.integers(1, 3)
        stem = "".join(_any(rng, ONSETS) + _any(rng, VOWELS) for _ in range(syllables))
        words[stem + _any(rng, CODAS) + _any(rng, ENDINGS)] = None
    return np.array(list(words))


def _any(rng: np.random.Generator, of: tuple[str, ...]) -> str:
    # Draws as `rng.choice` does, without making an array each time.
    return of[rng.integers(len(of))]


@lru_cache(maxsize=1)
def _places() -> dict[str, int]:
    return {word: place for place, word in enumerate(vocabulary().tolist())}


@lru_cache(maxsize=1)
def probabilities() -> NDArray[np.float64]:
    """How often each word of the vocabulary is said; together 1."""
    weights: NDArray[np.float64] = 1 / (np.arange(1, VOCABULARY_SIZE + 1) + RANK_SHIFT)
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares
