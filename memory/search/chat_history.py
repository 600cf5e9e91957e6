"""`search_chat_history`: the person's own turns, nearest in meaning first, by exact scan."""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from intake.models import Turn, User
from memory.embedders import EmbedderError, get_embedder
from memory.errors import EmbeddingModelAway
from memory.models import Corpus, Embedding

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
    nearest = list(mine.nearest(vector, limit=limit))
    snippets = _snippets(user, [(row["source_id"], row["chunk_index"]) for row in nearest])
    matches = [
        ChatMatch(row["source_id"], row["chunk_index"], snippets[key], row["distance"])
        for row in nearest
        if (key := (row["source_id"], row["chunk_index"])) in snippets
    ]
    return ChatHistory(matches=matches, pending=mine.count_unfilled_sources())


def _snippets(user: User, keys: list[tuple[UUID, int]]) -> dict[tuple[UUID, int], str]:
    """The beginning of each person's message; a turn deleted meanwhile is missing, and so is no longer a match."""
    turns = Turn.objects.for_user(user).with_keys(keys)
    return {
        (conversation_id, number): beginning
        for conversation_id, number, beginning in turns.with_beginning(SNIPPET_LENGTH).values_list(
            "conversation_id", "turn_number", "beginning"
        )
    }
