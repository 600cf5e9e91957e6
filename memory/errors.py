"""What can go wrong in memory, in words a caller may be told."""

from core.errors import Unavailable


class EmbeddingModelAway(Unavailable):
    default_detail = "The embedding model is away for the moment. Try again shortly."
