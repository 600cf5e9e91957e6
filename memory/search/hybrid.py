"""Both legs and their fusion, for any corpus: one statement for the words, one for the vectors, then arithmetic."""

from intake.models import User
from memory.embedders.base import Vector
from memory.models import Corpus
from memory.search.dense import measured
from memory.search.fusion import Candidate, Key, fuse
from memory.search.lexical import LexicalHit, best_by_words

# What each leg brings: several times what anybody asks for, so that a text which is only good in both is among them.
TEXTS_BY_WORDS = 100
PARTS_BY_MEANING = 200

Distances = dict[Key, float | None]
"""By text, the best first: the cosine distance of its nearest part, None while it has no vector."""


def by_words(*, user: User, corpus: Corpus, model: str, vector: Vector, query: str) -> Distances:
    """The texts that share words with the query, by BM25F alone."""
    hits = best_by_words(user=user, corpus=corpus, query=query, limit=TEXTS_BY_WORDS)
    candidates, _ = _candidates(hits, user=user, corpus=corpus, model=model, vector=vector, nearest=0)
    distances = {candidate.key: candidate.distance for candidate in candidates}
    return {key: distances[key] for hit in hits if (key := (hit.source_id, hit.chunk_index)) in distances}


def by_words_and_meaning(*, user: User, corpus: Corpus, model: str, vector: Vector, query: str) -> Distances:
    """The texts that either leg found, by relevance."""
    hits = best_by_words(user=user, corpus=corpus, query=query, limit=TEXTS_BY_WORDS)
    candidates, unrelated = _candidates(
        hits, user=user, corpus=corpus, model=model, vector=vector, nearest=PARTS_BY_MEANING
    )
    distances = {candidate.key: candidate.distance for candidate in candidates}
    return {key: distances[key] for key in fuse(candidates, unrelated=unrelated)}


def _candidates(
    hits: list[LexicalHit], *, user: User, corpus: Corpus, model: str, vector: Vector, nearest: int
) -> tuple[list[Candidate], float]:
    """What the legs found, joined; and the distance of what is unrelated to the query."""
    worded = {(hit.source_id, hit.chunk_index): hit for hit in hits}
    rows = measured(user=user, corpus=corpus, model=model, vector=vector, nearest=nearest, also=worded)
    candidates = []
    for row in rows:
        key = (row.source_id, row.chunk_index)
        hit = worded.get(key)
        candidates.append(
            Candidate(
                key=key,
                words=row.words,
                lexical=hit.score if hit else 0.0,
                said_lexical=hit.said_score if hit else 0.0,
                distance=row.distance,
                said_distance=row.said_distance,
            )
        )
    return candidates, (rows[0].unrelated if rows else None) or 0.0
