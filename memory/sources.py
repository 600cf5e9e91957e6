"""Where the embedded text comes from: each corpus says how its sources read; the text itself stays where it is."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from intake.models import Turn
from memory.chunking import turn_parts
from memory.embedders import Embedder
from memory.models import Corpus


@dataclass(frozen=True, slots=True)
class SourceKey:
    """Which text: for chat the conversation and the turn number."""

    corpus: Corpus
    source_id: UUID
    chunk_index: int


@dataclass(frozen=True, slots=True)
class Text:
    """What was said on each side, as it stands now. A text with one author has nothing on the assistant's side."""

    key: SourceKey
    user_id: int
    said_at: datetime
    said: str
    answered: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the parts of it that are embedded one by one."""

    text: Text
    parts: list[str]

    @property
    def key(self) -> SourceKey:
        return self.text.key

    @property
    def user_id(self) -> int:
        return self.text.user_id

    @property
    def said_at(self) -> datetime:
        return self.text.said_at


def content_hash(text: str) -> bytes:
    """BLAKE2b-128: 16 bytes that tell whether a part has changed since its vector was asked for."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def text_of(turn: Turn) -> Text:
    """A turn that has an owner; an answer that only quotes the person's own history is left out."""
    if turn.user_id is None:
        raise ValueError("A visitor's turn is not indexed until it has an owner.")
    return Text(
        key=SourceKey(Corpus.CHAT, turn.conversation_id, turn.turn_number),
        user_id=turn.user_id,
        said_at=turn.said_at,
        said=turn.user_message,
        answered="" if turn.is_recall else turn.assistant_message,
    )


def from_turn(turn: Turn, embedder: Embedder) -> Source:
    """The turn's text in the parts that this model embeds."""
    text = text_of(turn)
    parts = turn_parts(text.said, text.answered, token_offsets=embedder.token_offsets, max_tokens=embedder.max_tokens)
    return Source(text=text, parts=parts)


def load(keys: Iterable[SourceKey], embedder: Embedder) -> Iterator[Source]:
    """The sources that still exist, in one query; what was deleted meanwhile does not come back."""
    turns = Turn.objects.with_keys((key.source_id, key.chunk_index) for key in keys)
    for turn in turns.filter(user__isnull=False):
        yield from_turn(turn, embedder)
