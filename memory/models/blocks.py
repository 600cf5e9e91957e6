"""Vectors side by side, ten to a row: what an exact scan reads.

The scan's time goes into rows more than into distances: PostgreSQL hands each from node to node, whatever it holds. So
a worker packs a person's vectors into blocks, each about a page, and the scan asks every block only how near its
nearest vector is. The vectors in `embeddings` stay what counts; a block goes when one of its vectors does, and what
else it held is packed anew (`memory.vectors`).
"""

from django.conf import settings
from django.db import models
from pgvector.django import HalfVectorField

from memory.models.corpora import Corpus

SLOTS = 10


class VectorBlock(models.Model):
    """Up to `SLOTS` vectors of one person, corpus and model, in no order.

    Slot k is `p{k}`, the key of the row in `embeddings`, `t{k}`, when it was said, and `v{k}`, the vector; an empty one
    has none of the three.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    corpus = models.CharField(max_length=16, choices=Corpus)
    model = models.ForeignKey("memory.EmbeddingModel", on_delete=models.PROTECT, db_index=False)

    class Meta:
        db_table = "embedding_blocks"
        indexes = [models.Index(fields=["user", "corpus", "model"], name="idx_embedding_blocks_scan")]

    def __str__(self) -> str:
        return f"{self.corpus} of {self.user_id}"


# What has a fixed width stands first: its place in the row is known, while a vector is found by its predecessors.
for _prefix, _field in (("p", models.BigIntegerField), ("t", models.DateTimeField), ("v", HalfVectorField)):
    for _slot in range(SLOTS):
        VectorBlock.add_to_class(f"{_prefix}{_slot}", _field(null=True))
