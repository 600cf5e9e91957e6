"""`search_chat_history`: the person's own turns, nearest in meaning first, by exact scan."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from intake.models import Turn, User
from memory.chunking import MAX_PARTS
from memory.embedders import EmbedderError, get_embedder
from memory.embedders.base import Vector
from memory.errors import EmbeddingModelAway
from memory.models import Corpus, Embedding, EmbeddingQuerySet

SNIPPET_LENGTH = 200


class SearchMode(StrEnum):
    SEMANTIC = "semantic"


@dataclass(frozen=True, slots=True)
class ChatMatch:
    """One turn, however many parts it has. `score` is the cosine distance of its nearest part: lower is closer."""

    conversation_id: UUID
    turn_number: int
    snippet: str
    score: float


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """What was found, and how many of the person's turns have no vector yet and so could not be."""

    matches: list[ChatMatch]
    pending: int


def search_chat_history(*, user: User, query: str, limit: int) -> ChatHistory:
    """The `limit` turns of `user` nearest to `query`, by cosine distance ascending.

    Raises `EmbeddingModelAway` (retryable) when the query cannot be embedded.
    """
    embedder = get_embedder()
    try:
        vector = embedder.embed_query(query)
    except EmbedderError as error:
        raise EmbeddingModelAway from error
    mine = Embedding.objects.for_user(user).in_corpus(Corpus.CHAT).of_model(embedder.name)
    nearest = _nearest_turns(mine, vector, limit=limit)
    # A turn deleted meanwhile has no beginning, and so is no longer a match.
    snippets = Turn.objects.for_user(user).with_keys(nearest).beginnings(SNIPPET_LENGTH)
    matches = [
        ChatMatch(*key, snippet=snippets[key], score=distance) for key, distance in nearest.items() if key in snippets
    ]
    return ChatHistory(matches=matches, pending=mine.count_unfilled_sources())


def _nearest_turns(mine: EmbeddingQuerySet, vector: Vector, *, limit: int) -> dict[tuple[UUID, int], float]:
    """The first `limit` turns, each with the distance of its nearest part.

    A few parts a turn are fetched, since few turns crowd a ranking with theirs. Where they do, `MAX_PARTS` a turn are
    enough whatever they are.
    """
    for parts_a_turn in (4, MAX_PARTS):
        rows = list(mine.nearest_parts(vector, limit=limit * parts_a_turn))
        turns = fold(rows, limit=limit)
        if len(turns) == limit or len(rows) < limit * parts_a_turn:
            break
    return turns


def fold(parts: Iterable[tuple[UUID, int, float]], *, limit: int) -> dict[tuple[UUID, int], float]:
    """The first `limit` turns of an ascending ranking of parts, each with its first part's distance."""
    turns: dict[tuple[UUID, int], float] = {}
    for source_id, chunk_index, distance in parts:
        if len(turns) == limit:
            break
        turns.setdefault((source_id, chunk_index), distance)
    return turns
