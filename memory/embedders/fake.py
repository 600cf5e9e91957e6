"""A stand-in for tests: no model, no network, and yet texts that share words lie near each other."""

import hashlib
import re
from collections.abc import Sequence
from itertools import islice

import numpy as np

from memory.embedders.base import Embedder, Matrix, Span, Vector, normalised

_WORD = re.compile(r"\w+|[^\w\s]")


class FakeEmbedder(Embedder):
    """A hashed bag of words: every word has a fixed random direction, and a text is the sum of its words'."""

    def __init__(self, *, name: str = "fake", dimensions: int = 384, max_tokens: int = 256) -> None:
        self.name = name
        self.dimensions = dimensions
        self.max_tokens = max_tokens

    def embed_query(self, text: str) -> Vector:
        """See Embedder."""
        words = [text[start:end].lower() for start, end in self.token_offsets(text)[: self.max_tokens]]
        # A text without words has a direction too: the distance to a zero vector is not a number.
        return normalised(np.sum([self._direction(word) for word in words or [""]], axis=0))

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        return np.array([self.embed_query(text) for text in texts], np.float32).reshape(-1, self.dimensions)

    def token_offsets(self, text: str, at_most: int | None = None) -> list[Span]:
        """See Embedder: a token is a word or a punctuation mark."""
        return [match.span() for match in islice(_WORD.finditer(text), at_most)]

    def _direction(self, word: str) -> np.ndarray:
        seed = int.from_bytes(hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()[:8], "big")
        return np.random.default_rng(seed).standard_normal(self.dimensions)
