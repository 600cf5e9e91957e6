"""Both legs and their fusion, for any corpora: one statement for the words, one for the vectors, then arithmetic."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from memory.embedders.base import Vector
from memory.models import Corpus
from memory.search.dense import Measured, measured
from memory.search.fusion import Candidate, Key, fuse
from memory.search.lexical import LexicalHit, best_by_words
from memory.search.scope import Scope

# What each leg brings: several times what anybody asks for, so that a text which is only good in both is among them.
TEXTS_BY_WORDS = 100
PARTS_BY_MEANING = 200


@dataclass(frozen=True, slots=True)
class Found:
    """A text that a leg found: how relevant it is, 0 to about 1.4, higher is better.

    `distance` is the cosine distance of its nearest part, None while it has no vector. `shares_words`: whether it is
    among those that the lexical leg found.
    """

    corpus: Corpus
    source_id: UUID
    chunk_index: int
    relevance: float
    distance: float | None
    said_at: datetime
    shares_words: bool

    @property
    def key(self) -> Key:
        return (self.source_id, self.chunk_index)


def by_words(scope: Scope, *, query: str, vector: Vector, model: str) -> list[Found]:
    """The texts that share words with the query, the best first by BM25F alone."""
    hits = best_by_words(scope, query=query, limit=TEXTS_BY_WORDS)
    texts = {_key(row): row for row in measured(scope, model=model, vector=vector, nearest=0, also=_keys(hits))}
    return [_found(texts[key], hit.score, shares_words=True) for hit in hits if (key := _key(hit)) in texts]


def by_words_and_meaning(scope: Scope, *, query: str, vector: Vector, model: str) -> list[Found]:
    """The texts that either leg found, the most relevant first."""
    hits = {_key(hit): hit for hit in best_by_words(scope, query=query, limit=TEXTS_BY_WORDS)}
    texts = {
        _key(row): row for row in measured(scope, model=model, vector=vector, nearest=PARTS_BY_MEANING, also=list(hits))
    }
    unrelated = next((row.unrelated for row in texts.values() if row.unrelated is not None), 0.0)
    fused = fuse([_candidate(row, hits.get(key)) for key, row in texts.items()], unrelated=unrelated)
    return [_found(texts[key], relevance, shares_words=key in hits) for key, relevance in fused.items()]


def _candidate(row: Measured, hit: LexicalHit | None) -> Candidate:
    return Candidate(
        key=_key(row),
        words=row.words,
        lexical=hit.score if hit else 0.0,
        said_lexical=hit.said_score if hit else 0.0,
        distance=row.distance,
        said_distance=row.said_distance,
    )


def _found(row: Measured, relevance: float, *, shares_words: bool) -> Found:
    return Found(
        corpus=Corpus(row.corpus),
        source_id=row.source_id,
        chunk_index=row.chunk_index,
        relevance=relevance,
        distance=row.distance,
        said_at=row.said_at,
        shares_words=shares_words,
    )


def _key(row: Measured | LexicalHit) -> Key:
    return (row.source_id, row.chunk_index)


def _keys(hits: list[LexicalHit]) -> list[Key]:
    return [_key(hit) for hit in hits]
