"""A person's vectors as they are stored, for the peers: they search the very vectors that we do."""

from dataclasses import dataclass

import numpy as np
from django.db import connection
from numpy.typing import NDArray

from core.isolation.acting import acting_as
from intake.models import User
from memory.embedders import get_embedder
from memory.embedders.base import Matrix
from memory.models import Corpus
from memory.models.corpora import Key

_STORED = """
SELECT source_id, chunk_index, is_further, halfvec_send(vector)
  FROM embeddings
 WHERE user_id = %s AND corpus = %s AND vector IS NOT NULL
   AND model_id = (SELECT id FROM embedding_models WHERE name = %s)
 ORDER BY source_id, chunk_index, part
"""
# `halfvec_send` writes how many numbers there are, and a reserved one, in two bytes each, and then the numbers.
SENT_BEFORE = 2


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
    """Every part of one person's turns that has a vector."""
    with acting_as(user), connection.cursor() as cursor:
        cursor.execute(_STORED, [user.pk, Corpus.CHAT.value, get_embedder().name])
        rows = cursor.fetchall()
    sent = np.frombuffer(b"".join(bytes(row[3]) for row in rows), ">f2").reshape(len(rows), -1)
    return Stored(
        user,
        keys=[(source, number) for source, number, *_ in rows],
        vectors=sent[:, SENT_BEFORE:].astype(np.float32),
        is_further=np.array([row[2] for row in rows], bool),
    )
