"""The chat's texts: a turn is one, with a side for the person and one for the assistant."""

from collections.abc import Iterable
from typing import Any

from django.db.models import QuerySet

from intake.models import Turn, User
from memory.chunking import turn_parts
from memory.embedders import Embedder
from memory.models import Corpus
from memory.sources.base import Entry, Place, Reader, SourceKey, Text

# A subquery rather than a join, since workers lock the turns that they read.
REGISTERED = User.objects.filter(is_visitor=False).values("pk")


class TurnReader(Reader[Turn]):
    corpus = Corpus.CHAT
    columns = {"source_id": "conversation_id", "chunk_index": "turn_number"}

    def rows(self) -> QuerySet[Turn, Any]:
        """See Reader: turns of registered users that have ended."""
        return Turn.objects.filter(user__in=REGISTERED).exclude(status=Turn.Status.STREAMING)

    def rows_of(self, keys: Iterable[SourceKey]) -> QuerySet[Turn, Any]:
        """See Reader."""
        return Turn.objects.with_keys((key.source_id, key.chunk_index) for key in keys).filter(user__in=REGISTERED)

    def entry(self, row: Turn) -> Entry:
        """See Reader."""
        return entry_of(row)

    def parts(self, text: Text, embedder: Embedder) -> list[str]:
        """See Reader."""
        return turn_parts(
            text.said, text.answered, token_offsets=embedder.token_offsets, max_tokens=embedder.max_tokens
        )


def entry_of(turn: Turn) -> Entry:
    """A turn that has an owner; an answer that only quotes the person's own history is left out."""
    place = place_of(turn)
    text = Text(
        key=SourceKey(place.corpus, turn.conversation_id, turn.turn_number),
        user_id=place.user_id,
        said_at=turn.said_at,
        said=turn.user_message,
        answered="" if turn.is_recall else turn.assistant_message,
    )
    return Entry(place, [text])


def place_of(turn: Turn) -> Place:
    if turn.user_id is None:
        raise ValueError("A turn without an owner is not indexed.")
    return Place(turn.user_id, Corpus.CHAT, turn.conversation_id, turn.turn_number)
