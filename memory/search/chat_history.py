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
    keys = [(row["source_id"], row["chunk_index"]) for row in nearest]
    # A turn deleted meanwhile has no beginning, and so is no longer a match.
    snippets = Turn.objects.for_user(user).with_keys(keys).beginnings(SNIPPET_LENGTH)
    matches = [
        ChatMatch(*key, snippet=snippets[key], score=row["distance"])
        for key, row in zip(keys, nearest, strict=True)
        if key in snippets
    ]
    return ChatHistory(matches=matches, pending=mine.count_unfilled_sources())
