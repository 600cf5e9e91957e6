"""What is remembered: vectors of what was said, and which model made them."""

from memory.models.embeddings import Corpus, Embedding, EmbeddingModel, EmbeddingQuerySet

__all__ = ["Corpus", "Embedding", "EmbeddingModel", "EmbeddingQuerySet"]
