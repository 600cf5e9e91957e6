"""The models of memory: documents and records, the index with its vectors and terms, and the embedding models."""

from memory.models.documents import (
    Corpus,
    MemoryDocument,
    MemoryDocumentQuerySet,
    MemoryDocumentVersion,
    MemoryRecord,
    Proposal,
)
from memory.models.embeddings import (
    Embedding,
    EmbeddingModel,
    EmbeddingQuerySet,
    MapPoint,
    MemoryMap,
    TellingWord,
)
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
    "Proposal",
    "TellingWord",
    "TermBlock",
    "TermSegment",
]
