"""`search_chat_history`: the person's own turns, nearest in meaning first, or by words and meaning together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from intake.models import User
from intake.reading import beginnings
from memory.chunking import MAX_PARTS
from memory.embedders import EmbedderError, get_embedder
from memory.embedders.base import Vector
from memory.errors import EmbeddingModelAway
from memory.models import Corpus
from memory.search import hybrid
from memory.search.dense import nearest_parts
from memory.search.keys import Key
from memory.search.nearest import nearest_texts
from memory.search.scope import Scope

SNIPPET_LENGTH = 200
# What is said of a turn that was found by its words and has no vector yet: like nothing, unlike nothing.
DISTANCE_UNKNOWN = 1.0

Distances = Mapping[Key, float | None]
"""By turn, the best first: the cosine distance of its nearest part, None while it has no vector."""


class SearchMode(StrEnum):
    """`LEXICAL` is offered to nobody: it is there to be measured beside the others."""

    LEXICAL = "lexical"
    SEMANTIC = "semantic"
    HYBRID = "hybrid"


@dataclass(frozen=True, slots=True)
class ChatMatch:
    """One turn, however many parts it has. `score` is the cosine distance of its nearest part: lower is closer.

    A turn that waits for its vector has the score 1.
    """

    conversation_id: UUID
    turn_number: int
    snippet: str
    score: float


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """What was found, and how many of the person's turns have no vector yet and can only be found by their words."""

    matches: list[ChatMatch]
    pending: int


def search_chat_history(*, user: User, query: str, limit: int, mode: SearchMode = SearchMode.SEMANTIC) -> ChatHistory:
    """The `limit` turns of `user` that answer `query` best, in the order that `mode` says.

    Raises `EmbeddingModelAway` (retryable) when the query cannot be embedded.
    """
    embedder = get_embedder()
    try:
        vector = embedder.embed_query(query)
    except EmbedderError as error:
        raise EmbeddingModelAway from error
    scope = Scope(user, (Corpus.CHAT,))
    if mode is SearchMode.SEMANTIC:
        ranked, pending = _by_meaning(scope, model=embedder.name, vector=vector, limit=limit)
    else:
        rank = hybrid.by_words if mode is SearchMode.LEXICAL else hybrid.by_words_and_meaning
        found = rank(scope, query=query, vector=vector, model=embedder.name)
        ranked, pending = {one.key: one.distance for one in found.texts[:limit]}, found.waiting
    return ChatHistory(matches=_matches(user, ranked), pending=pending)


def _by_meaning(scope: Scope, *, model: str, vector: Vector, limit: int) -> tuple[Distances, int]:
    """The nearest turns, and how many wait for their vectors."""
    waiting = 0

    def find(*, limit: int) -> Sequence[tuple[UUID, int, float]]:
        nonlocal waiting
        parts, waiting = nearest_parts(scope, model=model, vector=vector, limit=limit)
        return parts

    nearest = nearest_texts(find, limit=limit, most_parts=MAX_PARTS)
    return nearest, waiting


def _matches(user: User, ranked: Distances) -> list[ChatMatch]:
    # A turn deleted meanwhile has no beginning, and so is no longer a match.
    snippets = beginnings(user=user, keys=ranked, length=SNIPPET_LENGTH)
    return [
        ChatMatch(*key, snippet=snippets[key], score=DISTANCE_UNKNOWN if distance is None else distance)
        for key, distance in ranked.items()
        if key in snippets
    ]
