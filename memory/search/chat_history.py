"""`search_chat_history`: the person's own turns, nearest in meaning first, or by words and meaning together."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from intake.models import User
from intake.reading import beginnings
from memory.embedders import EmbedderError, get_embedder
from memory.embedders.base import Vector
from memory.errors import EmbeddingModelAway
from memory.models import Corpus
from memory.search import hybrid
from memory.search.hybrid import Found
from memory.search.near_turns import nearest_turns
from memory.search.scope import Scope

SNIPPET_LENGTH = 200
# What is said of a turn that was found by its words and has no vector yet: like nothing, unlike nothing.
DISTANCE_UNKNOWN = 1.0


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
        return _by_meaning(scope, model=embedder.name, vector=vector, limit=limit)
    rank = hybrid.by_words if mode is SearchMode.LEXICAL else hybrid.by_words_and_meaning
    found = rank(scope, query=query, vector=vector, model=embedder.name)
    return ChatHistory(_matches(user, found.texts[:limit]), pending=found.waiting)


def _by_meaning(scope: Scope, *, model: str, vector: Vector, limit: int) -> ChatHistory:
    near = nearest_turns(scope, model=model, vector=vector, limit=limit, length=SNIPPET_LENGTH)
    matches = [
        ChatMatch(turn.conversation_id, turn.turn_number, snippet=turn.beginning, score=turn.distance)
        for turn in near.turns
    ]
    return ChatHistory(matches, pending=near.waiting)


def _matches(user: User, ranked: Sequence[Found]) -> list[ChatMatch]:
    # A turn deleted meanwhile has no beginning, and so is no longer a match.
    snippets = beginnings(user=user, keys=[one.key for one in ranked], length=SNIPPET_LENGTH)
    return [
        ChatMatch(*one.key, snippet=snippets[one.key], score=DISTANCE_UNKNOWN if one.distance is None else one.distance)
        for one in ranked
        if one.key in snippets
    ]
