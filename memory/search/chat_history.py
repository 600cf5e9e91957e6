"""`search_chat_history`: the person's own turns, nearest in meaning first, or by terms and meaning together.

The hybrid ranking is for any corpora, and `search_history` uses it too: one statement for the terms, one for the
vectors, then the arithmetic of `memory.search.fusion`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from core.errors import Unavailable
from intake.models import User
from intake.reading import beginnings
from memory import terms, vectors
from memory.chunking import MAX_PARTS
from memory.embedders import Calibration, Embedder, EmbedderError, get_embedder
from memory.embedders.base import UNCALIBRATED, Vector
from memory.models import Corpus
from memory.models.corpora import Key, Scope
from memory.search.fusion import Candidate, fuse
from memory.terms import TermHit
from memory.vectors import Distances, MeasuredText

SNIPPET_LENGTH = 200
# The distance of a turn that was found by its terms and has no vector yet: neither near nor far.
DISTANCE_UNKNOWN = 1.0
# What each retriever brings: several times what anybody asks for, so that a text which is only good in both is there.
TEXTS_BY_TERMS = 100
PASSAGES_BY_MEANING = 100
# A model that nobody has tuned is measured on a person's vectors if so many of their texts have one.
MEASURED_TEXTS = 50

NO_TERMS = TermHit(("", 0), score=0.0, said_score=0.0)


class EmbeddingModelAway(Unavailable):
    default_detail = "The embedding model is away for the moment. Try again shortly."


class SearchMode(StrEnum):
    """`LEXICAL` is offered to nobody: it is there to be measured beside the others."""

    LEXICAL = "lexical"
    SEMANTIC = "semantic"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class ChatMatch:
    """One turn, however many passages it has. `score` is the cosine distance of its nearest one: lower is closer.

    A turn that waits for its vector has the score 1.
    """

    conversation_id: UUID
    turn_number: int
    snippet: str
    score: float


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """`pending`: how many of the person's turns have no vector yet and can only be found by their terms."""

    matches: list[ChatMatch]
    pending: int


class Found(NamedTuple):
    """A text that a retriever found: how relevant it is, 0 to about 1.4, higher is better.

    `shares_terms`: whether it is among those that were found by their terms.
    """

    text: MeasuredText
    relevance: float
    shares_terms: bool

    @property
    def key(self) -> Key:
        source, place = self.text.key
        return (UUID(source), place)

    @property
    def distance(self) -> float | None:
        """The cosine distance of its nearest passage, None while it has no vector."""
        return self.text.distance

    @property
    def said_at(self) -> datetime:
        return datetime.fromtimestamp(self.text.said_at, UTC)


class FoundTexts(NamedTuple):
    """Texts, the best first. `pending`: how many of the scope's corpora have a passage without a vector.

    `calibration` is what their distances were read by.
    """

    texts: list[Found]
    pending: int
    calibration: Calibration


def search_chat_history(*, user: User, query: str, limit: int, mode: SearchMode = SearchMode.SEMANTIC) -> ChatHistory:
    """The `limit` turns of `user` that answer `query` best, in the order that `mode` says.

    Raises `EmbeddingModelAway` (retryable) when the query cannot be embedded.
    """
    embedder, vector = embedded(query)
    scope = Scope(user, (Corpus.CHAT,))
    if mode is SearchMode.SEMANTIC:
        return _by_meaning(scope, model=embedder.name, vector=vector, limit=limit)
    rank = by_terms if mode is SearchMode.LEXICAL else by_terms_and_meaning
    found = rank(scope, query=query, vector=vector, embedder=embedder)
    return ChatHistory(_matches(user, found.texts[:limit]), pending=found.pending)


def embedded(query: str) -> tuple[Embedder, Vector]:
    """The active model and its vector of the query. Raises `EmbeddingModelAway`."""
    embedder = get_embedder()
    try:
        return embedder, embedder.embed_query(query)
    except EmbedderError as error:
        raise EmbeddingModelAway from error


def by_terms(scope: Scope, *, query: str, vector: Vector, embedder: Embedder) -> FoundTexts:
    """The texts that share terms with the query, the best first by BM25F alone."""
    hits = terms.score(scope, query=query, limit=TEXTS_BY_TERMS)
    measured = vectors.distances(scope, model=embedder.name, vector=vector, passages=0, also=[hit.key for hit in hits])
    texts = {text.key: text for text in measured.texts}
    ranked = [Found(texts[hit.key], hit.score, shares_terms=True) for hit in hits if hit.key in texts]
    return FoundTexts(ranked, measured.pending, _calibration(embedder, measured))


def by_terms_and_meaning(scope: Scope, *, query: str, vector: Vector, embedder: Embedder) -> FoundTexts:
    """The texts that either retriever found, the most relevant first."""
    hits = {hit.key: hit for hit in terms.score(scope, query=query, limit=TEXTS_BY_TERMS)}
    measured = vectors.distances(scope, model=embedder.name, vector=vector, passages=PASSAGES_BY_MEANING, also=hits)
    calibration = _calibration(embedder, measured)
    texts = {text.key: text for text in measured.texts}
    candidates = [_candidate(text, hits.get(text.key, NO_TERMS)) for text in measured.texts]
    unrelated = 0.0 if measured.unrelated is None else measured.unrelated
    fused = fuse(candidates, unrelated=unrelated, calibration=calibration)
    ranked = [Found(texts[key], relevance, key in hits) for key, relevance in fused.items()]
    return FoundTexts(ranked, measured.pending, calibration)


def _calibration(embedder: Embedder, measured: Distances) -> Calibration:
    if embedder.calibration is not None:
        return embedder.calibration
    having_vector = sum(text.distance is not None for text in measured.texts)
    if measured.unrelated is None or having_vector < MEASURED_TEXTS:
        return UNCALIBRATED
    return Calibration.measured(measured.unrelated)


def _candidate(text: MeasuredText, hit: TermHit) -> Candidate:
    return Candidate(text.key, text.terms, hit.score, hit.said_score, text.distance, text.said_distance)


def _by_meaning(scope: Scope, *, model: str, vector: Vector, limit: int) -> ChatHistory:
    nearest = vectors.nearest(
        scope, model=model, vector=vector, limit=limit, most_passages=MAX_PARTS, beginning_length=SNIPPET_LENGTH
    )
    matches = [
        ChatMatch(text.source_id, text.chunk_index, snippet=text.beginning, score=text.distance)
        for text in nearest.texts
        if text.beginning is not None
    ]
    return ChatHistory(matches, pending=nearest.pending)


def _matches(user: User, ranked: Sequence[Found]) -> list[ChatMatch]:
    # A turn deleted meanwhile has no beginning, and so is no longer a match.
    snippets = beginnings(user=user, keys=[one.key for one in ranked], length=SNIPPET_LENGTH)
    return [
        ChatMatch(*one.key, snippet=snippets[one.key], score=DISTANCE_UNKNOWN if one.distance is None else one.distance)
        for one in ranked
        if one.key in snippets
    ]
