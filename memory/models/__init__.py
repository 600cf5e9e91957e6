"""The models of memory: documents and records, the index with its vectors and terms, and the embedding models."""

from memory.models.corpora import Corpus
from memory.models.documents import (
    MemoryDocument,
    MemoryDocumentQuerySet,
    MemoryDocumentVersion,
    MemoryRecord,
)
from memory.models.embeddings import Embedding, EmbeddingModel, EmbeddingQuerySet, VectorBlock
from memory.models.overview import MapPoint, MemoryMap, TellingWord
from memory.models.postings import DeletedText, IndexedText, PendingTerms, TermBlock, TermSegment

__all__ = [
    "Corpus",
    "DeletedText",
    "Embedding",
    "EmbeddingModel",
    "EmbeddingQuerySet",
    "IndexedText",
    "MapPoint",
    "MemoryDocument",
    "MemoryDocumentQuerySet",
    "MemoryDocumentVersion",
    "MemoryMap",
    "MemoryRecord",
    "PendingTerms",
    "TellingWord",
    "TermBlock",
    "TermSegment",
    "VectorBlock",
]
