"""What indexing and search ask of an embedding model, whichever it is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
"""float32, shape (dimensions,), of length 1, so that the inner product of two is their cosine."""
Matrix = npt.NDArray[np.float32]
"""float32, shape (n, dimensions): one Vector per row."""
Span = tuple[int, int]
"""Start (inclusive) and end (exclusive) of a token, in characters of the text it was found in."""


class EmbedderError(Exception):
    """No vector could be made. The message is for people: it never holds text of theirs, nor a key."""


class EmbedderUnavailable(EmbedderError):
    """The model is away, too busy or too slow at the moment: try again."""


class EmbedderRefused(EmbedderError):
    """The model does not take one of these texts; the others may go by themselves."""


class EmbedderMisconfigured(EmbedderError):
    """Trying again changes nothing: a file or a setting, named in the message, has to change first."""


class Embedder(ABC):
    """An embedding model. One instance serves all threads of a process.

    Queries and documents have methods of their own because many models want a different prefix for each.
    """

    name: str
    """Stored with every vector. Models that place a text differently, if only by rounding, differ in name."""
    dimensions: int
    max_tokens: int
    """The longest text that is read whole, in tokens as `token_offsets` counts them."""

    @abstractmethod
    def embed_query(self, text: str) -> Vector:
        """Return the normalised vector to search by. Raise an EmbedderError."""

    @abstractmethod
    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """Return the normalised vectors to be found, in the order of `texts`. Raise an EmbedderError."""

    @abstractmethod
    def token_offsets(self, text: str, at_most: int | None = None) -> list[Span]:
        """Return where the text's tokens lie, in order; needs no model, for a request waits for it.

        Of more than `at_most` it may leave out the rest: of a long text most is never looked at.
        """

    def check(self) -> None:  # noqa: B027 (most models have nothing here to check)
        """Make sure, loading nothing, that what the model needs is there. Raise EmbedderMisconfigured."""

    def warm_up(self, *, for_documents: bool = False) -> None:  # noqa: B027
        """Load what the first query, or the first document, would otherwise wait for. Raise EmbedderMisconfigured."""


def normalised(vectors: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Scale along the last axis to length 1; a zero vector stays zero, which is unlike everything."""
    array = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(array, axis=-1, keepdims=True)
    return (array / np.where(lengths == 0.0, 1.0, lengths)).astype(np.float32)
