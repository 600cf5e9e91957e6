"""Embedding models: their interface, the configured ones, of which one is active, and a fake one for tests.

Normally `EMBEDDER` is the only model. During a switch to another one, that one is `EMBEDDER_NEXT`. `EMBEDDER_BEFORE` is
the other built-in model, which may have made the index before the default changed. The database says which of them is
active (docs/decisions/0047).
"""

import asyncio
import hashlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.core.signals import setting_changed

from memory.backends.configured import configured

Vector = npt.NDArray[np.float32]
"""float32, shape (dimensions,), of length 1, so that the inner product of two is their cosine."""
Matrix = npt.NDArray[np.float32]
"""float32, shape (n, dimensions): one Vector per row."""
Span = tuple[int, int]
"""Start (inclusive) and end (exclusive) of a token, in characters of the text it was found in."""


_WORD = re.compile(r"\w+|[^\w\s]")


class EmbedderError(Exception):
    """No vector could be made: the model is away or busy, or a file or a setting, named in the message, is wrong.

    The message is for people: it never contains a user's text or a key.
    """


class EmbedderLeftAlone(EmbedderError):
    """The endpoint did not answer several times in a row and is not asked at the moment."""


class EmbedderSlow(EmbedderError):
    """The model did not answer in time. Fewer texts at once may help."""


class EmbedderRefused(EmbedderError):
    """The model does not accept one of these texts; the others may succeed separately."""


class RankingWeights(NamedTuple):
    """The weight of each feature of a text in its score in a hybrid search (`memory.search.fusion`).

    Fitted by `manage.py fit_ranking` on LoCoMo, BEAM-100K and fourteen months of three lives (docs/decisions/0009).
    """

    nearness: float = 1.65
    user_nearness: float = 1.03
    neighbours_nearness: float = 0.47
    closeness: float = 1.82
    words_shared: float = 1.09
    words_leading: float = 2.78
    words_rare: float = 1.40
    user_terms: float = 1.23
    neighbours_words: float = 1.64
    length: float = 1.92
    month_named: float = 1.5
    day_named: float = 0.9


FITTED = RankingWeights()


@dataclass(frozen=True, slots=True)
class Calibration:
    """How to interpret a model's cosine distances, and their weight beside terms.

    The numbers of the built-in model are `TUNED`. With it, three in ten of a user's passages are farther from a query
    than `UNRELATED`, and the other two distances are in proportion to that. A model without tuned numbers gets them in
    proportion to its own value.
    """

    convincing: float
    """So much nearer than the unrelated is what answers most questions."""
    far: float
    """Beyond this distance a match is mostly chance."""
    near: float = 0.7
    """Beyond this distance a text is given unasked only if its words match too (docs/decisions/0063)."""
    weights: RankingWeights = FITTED
    further: float = 0.06
    """A passage further on in a long text counts as so much farther than it is."""
    slope: float = 0.924
    intercept: float = -9.32
    """With `slope`: what makes of a score how likely it is that the text is what was wanted."""
    same: float = 0.35
    """Two sentences that are no farther apart say the same: 14 of 14 pairs in other words, and none of 12 on one topic
    but one (docs/decisions/0069)."""
    topic: float = 0.56
    """And two that are no farther apart are about one topic: 9 of 12, and 2 of 100 unrelated pairs."""

    @classmethod
    def measured(cls, unrelated: float) -> Self:
        """For a model without tuned numbers, where three in ten of the user's passages are farther than `unrelated`."""
        distances = ("convincing", "far", "near", "further", "same", "topic")
        return cls(**{name: getattr(TUNED, name) * (unrelated / UNRELATED) for name in distances})


UNRELATED = 0.87
TUNED = Calibration(convincing=0.35, far=0.75)
# For a model without tuned numbers and with too few vectors to measure: no distance excludes a result.
UNCALIBRATED = Calibration(convincing=TUNED.convincing, far=2.0, near=2.0)


class Embedder(ABC):
    """An embedding model. One instance serves all threads of a process.

    Queries and documents have separate methods because many models want a different prefix for each.
    """

    name: str
    """Stored with every vector. Models that place a text differently, if only by rounding, differ in name."""
    dimensions: int
    max_tokens: int
    """The longest text that is read whole, in tokens as `token_offsets` counts them."""
    calibration: Calibration | None = None
    """None for a model without tuned numbers: search then measures them on the user's own vectors."""
    batch_seconds: float = 10.0
    """How long a batch may take: so long a message waits behind a long import. An endpoint is slow with small ones."""

    @abstractmethod
    def embed_query(self, text: str) -> Vector:
        """Return the normalised vector of a query; a zero vector if the model knows none of its tokens.

        Raise an EmbedderError.
        """

    @abstractmethod
    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Return the normalised vectors of texts, in the order of `texts`. Raise an EmbedderError."""

    @abstractmethod
    def token_offsets(self, text: str, at_most: int | None = None) -> list[Span]:
        """Return the positions of the text's tokens, in order; must be fast, because a request waits for it.

        After `at_most` tokens it may leave out the rest: most of a long text is not needed at once.
        """

    def check(self) -> None:  # noqa: B027 (most models have nothing here to check)
        """Check, without loading anything, that the model's files exist. Raise EmbedderError."""

    def warm_up(self, *, for_documents: bool = False) -> None:  # noqa: B027
        """Load everything that the first query, or the first document, would wait for. Raise EmbedderError."""


def normalised(vectors: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Scale along the last axis to length 1; a zero vector stays zero, and is similar to nothing."""
    array = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(array, axis=-1, keepdims=True)
    return (array / np.where(lengths == 0.0, 1.0, lengths)).astype(np.float32)


class FakeEmbedder(Embedder):
    """A hashed bag of words: every word has a fixed random direction, and a text is the sum of its words."""

    calibration = TUNED

    def __init__(self, *, name: str = "fake", dimensions: int = 384, max_tokens: int = 256) -> None:
        self.name = name
        self.dimensions = dimensions
        self.max_tokens = max_tokens

    def embed_query(self, text: str) -> Vector:
        """See Embedder."""
        words = [text[start:end].lower() for start, end in self.token_offsets(text)[: self.max_tokens]]
        # A text without words also needs a direction: the distance to a zero vector is not a number.
        return normalised(np.sum([_direction(word, self.dimensions) for word in words or [""]], axis=0))

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        return np.array([self.embed_query(text) for text in texts], np.float32).reshape(-1, self.dimensions)

    def token_offsets(self, text: str, at_most: int | None = None) -> list[Span]:
        """See Embedder: a token is a word or a punctuation mark."""
        return [match.span() for match in islice(_WORD.finditer(text), at_most)]


# Of the words that come again and again: to begin a generator for each took most of a fake embedding.
@lru_cache(maxsize=4_096)
def _direction(word: str, dimensions: int) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    return np.random.default_rng(seed).standard_normal(dimensions)


# How long a process uses the name of the active model that it read last. During a switch, two processes may differ for
# as long.
ACTIVE_NAME_SECONDS = 1.0

_active_name: tuple[float, str | None] | None = None
_chosen: ContextVar[Embedder | None] = ContextVar("embedder", default=None)


def get_embedder() -> Embedder:
    """Return the active model's embedder, which made the index and embeds queries and new texts.

    Raise EmbedderError if the settings are invalid, or name other models than the active one.
    """
    if (chosen := _chosen.get()) is not None:
        return chosen
    current, *others = configured_embedders()
    if not others:
        return current
    name = _recent_active_name()
    if name is None or name == current.name:
        return current
    for other in others:
        if other.name == name:
            return other
    if settings.EMBEDDER_NEXT:
        require_active(*(embedder.name for embedder in (current, *others)))
    return current


def get_next_embedder() -> Embedder | None:
    """Return the embedder to switch to: the next model, or `EMBEDDER` where another one may have made the index."""
    name = "EMBEDDER_NEXT" if settings.EMBEDDER_NEXT else "EMBEDDER" if settings.EMBEDDER_BEFORE else ""
    following: Embedder | None = configured(name, Embedder, EmbedderError) if name else None
    return following


def configured_embedders() -> list[Embedder]:
    """All configured embedders, `EMBEDDER` first. Raise EmbedderError."""
    others = [name for name in ("EMBEDDER_NEXT", "EMBEDDER_BEFORE") if getattr(settings, name)]
    return [configured(name, Embedder, EmbedderError) for name in ("EMBEDDER", *others)]


def _recent_active_name() -> str | None:
    """The active model's name, read periodically; None before anything is indexed, when the settings decide."""
    global _active_name  # noqa: PLW0603
    if _active_name is not None and time.monotonic() - _active_name[0] < ACTIVE_NAME_SECONDS:
        return _active_name[1]
    if _is_in_event_loop():
        # This code must not wait for the database; it only loads a model at start-up.
        return None
    name = read_active_name()
    _active_name = (time.monotonic(), name)
    return name


def read_active_name() -> str | None:
    from memory.models import EmbeddingModel  # its module imports this one

    return EmbeddingModel.active().values_list("name", flat=True).first()


def require_active(*configured: str) -> None:
    """Raise EmbedderError if none of these models made the index: search could not read it."""
    name = read_active_name()
    if name is not None and name not in configured:
        raise EmbedderError(
            f"The index was made with the embedding model {name}, and the settings name {' and '.join(configured)}: "
            "name it again in EMBEDDING_…, and put another one into EMBEDDING_NEXT_… to switch to."
        )


def forget_active_name(**_kwargs: Any) -> None:
    global _active_name  # noqa: PLW0603
    _active_name = None


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def using(embedder: Embedder) -> Iterator[None]:
    """Within the block, this model is the active one for this thread."""
    token = _chosen.set(embedder)
    try:
        yield
    finally:
        _chosen.reset(token)


setting_changed.connect(forget_active_name)
