"""Reads a user's stored vectors back for the peers: they search the very vectors that we do."""

from dataclasses import dataclass
from uuid import UUID

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from core.isolation.acting import acting_as
from evals.benchmarks.search.binary_copy import SIGNATURE, TRAILER
from intake.models import User
from memory.embedders import get_embedder
from memory.embedders.base import Matrix
from memory.models import Corpus, EmbeddingModel
from memory.models.corpora import Key

"""Which turn: the conversation and the turn's number."""

_HEADER = len(SIGNATURE)


@dataclass(frozen=True, slots=True)
class Stored:
    """A person's parts: row i of `vectors` is a part of the turn `keys[i]`; the vectors are float32, as stored.

    `is_further`: which of the parts are further on in a long text.
    """

    user: User
    keys: list[Key]
    vectors: Matrix
    is_further: NDArray[np.bool_]


def read(user: User) -> Stored:
    """Everything of one person, as the database streams it out: rows of one width, taken apart without a loop."""
    model = EmbeddingModel.objects.for_embedder(get_embedder())
    with acting_as(user), connection.cursor() as cursor:
        statement = """
            COPY (SELECT source_id, chunk_index, is_further, vector
                    FROM embeddings
                   WHERE user_id = %s AND corpus = %s AND model_id = %s AND vector IS NOT NULL
                   ORDER BY source_id, chunk_index, part)
              TO STDOUT (FORMAT BINARY)
            """
        with cursor.copy(statement, [user.pk, Corpus.CHAT.value, model.pk]) as copy:
            stream = b"".join(bytes(block) for block in copy)
    rows = np.frombuffer(stream[_HEADER : -len(TRAILER)], _row(model.dimensions))
    keys = [(UUID(bytes=bytes(row)), int(number)) for row, number in zip(rows["source"], rows["number"], strict=True)]
    return Stored(user, keys, rows["vector"].astype(np.float32), rows["is_further"].astype(bool))


def _row(dimensions: int) -> np.dtype:
    """Each value behind its length in bytes; a halfvec begins with its dimensions and an unused number."""
    return np.dtype(
        [
            ("fields", ">i2"),
            ("source_bytes", ">i4"),
            ("source", "V16"),
            ("number_bytes", ">i4"),
            ("number", ">i4"),
            ("is_further_bytes", ">i4"),
            ("is_further", "u1"),
            ("vector_bytes", ">i4"),
            ("vector_head", "V4"),
            ("vector", ">f2", dimensions),
        ]
    )
