"""Turns a saved text into terms and vectors: `writer` runs in the transaction of the save, `worker` in the workers."""

from memory.index.worker import claim, embed_pending, fill, has_pending, quarantine_exhausted
from memory.index.writer import enqueue_missing, forget, index, index_new, refresh

__all__ = [
    "claim",
    "embed_pending",
    "enqueue_missing",
    "fill",
    "forget",
    "has_pending",
    "index",
    "index_new",
    "quarantine_exhausted",
    "refresh",
]
