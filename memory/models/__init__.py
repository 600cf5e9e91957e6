"""What is remembered: vectors and words of what was said, and which model made the vectors."""

from memory.models.corpora import Corpus
from memory.models.embeddings import Embedding, EmbeddingModel, EmbeddingQuerySet
from memory.models.postings import IndexedText, Posting

__all__ = ["Corpus", "Embedding", "EmbeddingModel", "EmbeddingQuerySet", "IndexedText", "Posting"]
