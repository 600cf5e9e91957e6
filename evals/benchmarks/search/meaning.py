"""Made-up meaning: vectors for made-up texts, millions of them, where the model would take hours.

A word has a fixed random direction. A text's vector is the sum of its rarest words' directions, each times its idf,
and of a direction that all texts share, as real sentence embeddings do; so texts with the same rare words lie near each
other, and a search has something to find.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache

import numpy as np
from django.test import override_settings
from numpy.typing import NDArray

from evals import synthetic
from memory.backends.embedders import Embedder, Matrix, Span, Vector, get_embedder, normalised

SEED = 384
# The others of a part hardly change its direction, and cost as much.
RAREST = 32
# So that unrelated texts have a cosine of about 0.1, as with the built-in model.
SHARED = 0.35
PART_WORDS = 150
AT_ONCE = 512


class SyntheticEmbedder(Embedder):
    """Stands in for the configured model under its name; splits texts as that one does."""

    def __init__(self, *, like: Embedder) -> None:
        self.name, self.dimensions, self.max_tokens = like.name, like.dimensions, like.max_tokens
        self.calibration = like.calibration
        self._like = like
        self.embed_query = lru_cache(maxsize=10_000)(self._embed_query)  # type: ignore[method-assign]

    def embed_query(self, text: str) -> Vector:
        """See Embedder; a text that was embedded before costs nothing, so that a search is timed without it."""
        return self._embed_query(text)

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        return meanings(texts, dimensions=self.dimensions)

    def token_offsets(self, text: str, at_most: int | None = None) -> list[Span]:
        """See Embedder."""
        return self._like.token_offsets(text, at_most)

    def _embed_query(self, text: str) -> Vector:
        vector: Vector = meanings([text], dimensions=self.dimensions)[0]
        return vector


@contextmanager
def synthetic_meaning() -> Iterator[SyntheticEmbedder]:
    """Within the block this process searches by made-up meaning, at no cost for a query that it has seen."""
    backend = f"{SyntheticEmbedder.__module__}.{SyntheticEmbedder.__qualname__}"
    with override_settings(EMBEDDER={"BACKEND": backend, "OPTIONS": {"like": get_embedder()}}):
        embedder = get_embedder()
        assert isinstance(embedder, SyntheticEmbedder)  # noqa: S101
        yield embedder


def meanings(texts: Sequence[str], *, dimensions: int) -> Matrix:
    """The texts' vectors, in their order, normalised."""
    rarest = np.full((len(texts), RAREST), synthetic.VOCABULARY_SIZE)
    for row, text in enumerate(texts):
        # The vocabulary is in the order of frequency, so that the last are the rarest.
        kept = sorted(set(synthetic.words_in(text)))[-RAREST:]
        rarest[row, : len(kept)] = kept
    vectors = [_summed(rarest[start : start + AT_ONCE], dimensions) for start in range(0, len(texts), AT_ONCE)]
    return np.concatenate(vectors) if vectors else np.empty((0, dimensions), np.float32)


def _summed(words: NDArray[np.int64], dimensions: int) -> Matrix:
    sums = np.einsum("nk,nkd->nd", _idf()[words], _directions(dimensions)[words], optimize=True)
    return normalised(normalised(sums) + SHARED * _shared(dimensions))


@cache
def _idf() -> NDArray[np.float32]:
    """Of each word over parts of usual length; the place after the last stands for no word."""
    idf = np.log(1 + 1 / (synthetic.probabilities() * PART_WORDS))
    return np.append(idf, 0).astype(np.float32)


@cache
def _directions(dimensions: int) -> Matrix:
    rng = np.random.default_rng([SEED, dimensions])
    return normalised(rng.standard_normal((synthetic.VOCABULARY_SIZE + 1, dimensions), np.float32))


@cache
def _shared(dimensions: int) -> Vector:
    return normalised(np.random.default_rng([SEED, dimensions, 1]).standard_normal(dimensions))
