"""Embedded rows of made-up vectors, straight into the table, and what a search among them must find."""

from datetime import timedelta

import numpy as np

from intake.tests.factories import NOW
from memory.backends.embedders import FakeEmbedder, get_embedder
from memory.index import vectors as stored
from memory.models import Corpus, Embedding, EmbeddingModel
from memory.models.documents import Scope
from memory.tests.rows import a_place


def directions(count, *, seed, dimensions=384):
    vectors = np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def fill(user, vectors, *, model=None, has_bits=True):
    """A row for each, in this order and each said an hour after the one before."""
    model = model or EmbeddingModel.named(get_embedder().name, get_embedder().dimensions)
    source_id = a_place(user, turns=range(1, len(vectors) + 1))
    return Embedding.objects.bulk_create(
        Embedding(
            user=user,
            corpus=Corpus.CHAT,
            source_id=source_id,
            chunk_index=number + 1,
            model=model,
            vector=vector,
            bits=bits if has_bits else None,
            length=1,
            content_hash=b"0" * 16,
            said_at=NOW + timedelta(hours=number),
            embedded_at=NOW,
        )
        for number, (vector, bits) in enumerate(zip(vectors, stored.signs(vectors, model=model.name), strict=True))
    )


def nearest(user, query, *, limit, model="fake", **period):
    """The places in `vectors` of the nearest, as the search gives them."""
    scope = Scope(user, (Corpus.CHAT,), **period)
    hits, _ = stored.nearest(scope, stored.Meaning(FakeEmbedder(name=model), query), limit=limit)
    return [hit.key[1] - 1 for hit in hits]


def by_brute_force(vectors, query):
    """The places of all, the nearest first. Both are stored and sent in half precision."""
    halves, half = vectors.astype(np.float16).astype(np.float64), query.astype(np.float16).astype(np.float64)
    distances = 1 - halves @ half / (np.linalg.norm(halves, axis=1) * np.linalg.norm(half))
    return list(np.argsort(distances, kind="stable"))
