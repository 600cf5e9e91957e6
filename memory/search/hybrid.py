"""Both legs and their fusion, for any corpora: one statement for the words, one for the vectors, then arithmetic."""

from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from memory.embedders.base import Vector
from memory.models import Corpus
from memory.search.dense import Measured, measured
from memory.search.fusion import Candidate, fuse
from memory.search.keys import Key
from memory.search.lexical import LexicalHit, best_by_words
from memory.search.scope import Scope

# What each leg brings: several times what anybody asks for, so that a text which is only good in both is among them.
TEXTS_BY_WORDS = 100
PARTS_BY_MEANING = 100

NO_WORDS = LexicalHit(("", 0), score=0.0, said_score=0.0)


class Found(NamedTuple):
    """A text that a leg found: how relevant it is, 0 to about 1.4, higher is better.

    `shares_words`: whether it is among those that the lexical leg found.
    """

    text: Measured
    relevance: float
    shares_words: bool

    @property
    def key(self) -> Key:
        source, place = self.text.key
        return (UUID(source), place)

    @property
    def corpus(self) -> Corpus:
        return Corpus(self.text.corpus)

    @property
    def distance(self) -> float | None:
        """The cosine distance of its nearest part, None while it has no vector."""
        return self.text.distance

    @property
    def said_at(self) -> datetime:
        return datetime.fromtimestamp(self.text.said_at, UTC)


class Ranked(NamedTuple):
    """Texts, the best first; and how many of the scope's corpora have a part without a vector."""

    texts: list[Found]
    waiting: int


def by_words(scope: Scope, *, query: str, vector: Vector, model: str) -> Ranked:
    """The texts that share words with the query, the best first by BM25F alone."""
    hits = best_by_words(scope, query=query, limit=TEXTS_BY_WORDS)
    found = measured(scope, model=model, vector=vector, nearest=0, also=[hit.key for hit in hits])
    texts = {text.key: text for text in found.texts}
    ranked = [Found(texts[hit.key], hit.score, shares_words=True) for hit in hits if hit.key in texts]
    return Ranked(ranked, found.waiting)


def by_words_and_meaning(scope: Scope, *, query: str, vector: Vector, model: str) -> Ranked:
    """The texts that either leg found, the most relevant first."""
    hits = {hit.key: hit for hit in best_by_words(scope, query=query, limit=TEXTS_BY_WORDS)}
    found = measured(scope, model=model, vector=vector, nearest=PARTS_BY_MEANING, also=hits)
    texts = {text.key: text for text in found.texts}
    candidates = [_candidate(text, hits.get(text.key, NO_WORDS)) for text in found.texts]
    fused = fuse(candidates, unrelated=0.0 if found.unrelated is None else found.unrelated)
    return Ranked([Found(texts[key], relevance, key in hits) for key, relevance in fused.items()], found.waiting)


def _candidate(text: Measured, hit: LexicalHit) -> Candidate:
    return Candidate(text.key, text.words, hit.score, hit.said_score, text.distance, text.said_distance)
