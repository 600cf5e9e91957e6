"""From a saved text to its words and vectors: pending rows are the queue, and each step may be repeated or cut short.

1. `queueing` writes the words, and a pending row per part, in the transaction that saves the text; `new_texts` does it
   in few statements. `memory.terms.flush` takes the words to where a search has least to read.
2. `claims` takes rows for a while, counting the attempt before it is made: a row that kills its worker is found out.
3. `embedding` makes the vectors, batch by batch, and stores each only if its text is still the same.
   `memory.vectors.store` puts them side by side, for a scan that reads them all.
4. What fails is tried again later; what failed too often is quarantined, and staff see it.
"""

from memory.indexing.claims import claim, has_pending, quarantine_exhausted
from memory.indexing.embedding import Filled, embed_pending, fill
from memory.indexing.new_texts import Begun
from memory.indexing.queueing import begin, enqueue, enqueue_missing, forget, index, refresh

__all__ = [
    "Begun",
    "Filled",
    "begin",
    "claim",
    "embed_pending",
    "enqueue",
    "enqueue_missing",
    "fill",
    "forget",
    "has_pending",
    "index",
    "quarantine_exhausted",
    "refresh",
]
