"""Made-up turns in the shape of real ones, for benchmarks: the same for the same seed, on every machine.

Lengths are log-normal: a person's message has 150 characters at the median, an answer 1,200 with a tail to 8,000. Words
follow Zipf's law over 20,000: the commonest are English, the rest is pronounceable and made up, so that the embedding
model's tokenizer has about as much to do as with real text (three to four characters to a token).
"""

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


@dataclass(frozen=True, slots=True)
class SyntheticTurn:
    user_message: str
    assistant_message: str


def turns(count: int, *, seed: int = 0) -> Iterator[SyntheticTurn]:
    """`count` turns; those of another seed are others."""
    rng = np.random.default_rng(seed)
    for start in range(0, count, AT_ONCE):
        size = min(AT_ONCE, count - start)
        messages = _texts(rng, _lengths(rng, size, MESSAGE_MEDIAN, MESSAGE_SPREAD, MESSAGE_LIMITS))
        answers = _texts(rng, _lengths(rng, size, ANSWER_MEDIAN, ANSWER_SPREAD, ANSWER_LIMITS))
        yield from map(SyntheticTurn, messages, answers)


def queries(count: int, *, seed: int = 0, words: int = 5) -> list[str]:
    """Questions of so many words, some 12 tokens each."""
    drawn = np.random.default_rng([seed, 1]).choice(VOCABULARY_SIZE, size=(count, words), p=_probabilities())
    return [" ".join(row) + "?" for row in _vocabulary()[drawn]]


def _lengths(
    rng: np.random.Generator, size: int, median: int, spread: float, limits: tuple[int, int]
) -> NDArray[np.int64]:
    return np.clip(rng.lognormal(np.log(median), spread, size), *limits).astype(np.int64)


def _texts(rng: np.random.Generator, lengths: NDArray[np.int64]) -> list[str]:
    """A text of about each length: words are drawn for all at once, and dealt out in turn."""
    texts = []
    drawn = _words(rng, int(lengths.sum()))
    for length in lengths:
        words: list[str] = []
        written = 0
        while written < length:
            words.append(next(drawn))
            written += len(words[-1]) + 1
        texts.append(_sentences(words))
    return texts


def _words(rng: np.random.Generator, characters: int) -> Iterator[str]:
    while True:
        # No word is shorter than a character and a space, so one round is nearly always enough.
        yield from _vocabulary()[rng.choice(VOCABULARY_SIZE, size=characters // 4 + AT_ONCE, p=_probabilities())]


def _sentences(words: list[str]) -> str:
    sentences = (words[start : start + SENTENCE_WORDS] for start in range(0, len(words), SENTENCE_WORDS))
    return " ".join(" ".join(sentence).capitalize() + "." for sentence in sentences)


@lru_cache(maxsize=1)
def _vocabulary() -> NDArray[np.str_]:
    """The commonest first."""
    rng = np.random.default_rng(20_000)
    words = dict.fromkeys(COMMON_WORDS.read_text().split())
    while len(words) < VOCABULARY_SIZE:
        syllables = rng.integers(1, 3)
        stem = "".join(str(rng.choice(ONSETS)) + str(rng.choice(VOWELS)) for _ in range(syllables))
        words[stem + str(rng.choice(CODAS)) + str(rng.choice(ENDINGS))] = None
    return np.array(list(words))


@lru_cache(maxsize=1)
def _probabilities() -> NDArray[np.float64]:
    weights: NDArray[np.float64] = 1 / (np.arange(1, VOCABULARY_SIZE + 1) + RANK_SHIFT)
    probabilities: NDArray[np.float64] = weights / weights.sum()
    return probabilities
