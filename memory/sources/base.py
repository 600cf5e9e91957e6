"""What indexing knows of a text: where in the index it stands, how it reads, and into which parts a model cuts it."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet

from memory.chunking import text_parts
from memory.embedders import Embedder
from memory.models import Corpus

Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class SourceKey:
    """Which text: for chat the conversation and the turn number, for a document the number of the chunk."""

    corpus: Corpus
    source_id: UUID
    chunk_index: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the index: one text's place, or all of a source's when no chunk is named."""

    user_id: int
    corpus: Corpus
    source_id: UUID
    chunk_index: int | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """What was said on each side, as it stands now. A text with one author has nothing on the assistant's side."""

    key: SourceKey
    user_id: int
    said_at: datetime
    said: str
    answered: str = ""

    def columns(self) -> dict[str, Any]:
        """What every row of the index says of its text."""
        return {
            "user_id": self.user_id,
            "corpus": self.key.corpus,
            "source_id": self.key.source_id,
            "chunk_index": self.key.chunk_index,
            "said_at": self.said_at,
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """The texts that are indexed together: whatever else stands at their place in the index is stale."""

    place: Place
    texts: Sequence[Text]


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


class Reader(ABC, Generic[Row]):
    """Reads the texts of one corpus from the rows that keep them; the texts themselves stay where they are."""

    corpus: Corpus
    columns: Mapping[str, str]
    """Which field of a row says where in the index its texts stand: by `source_id`, perhaps `chunk_index`."""

    @abstractmethod
    def rows(self) -> QuerySet[Row, Any]:
        """All that are to be indexed."""

    @abstractmethod
    def rows_of(self, keys: Iterable[SourceKey]) -> QuerySet[Row, Any]:
        """Those of `rows` that keep the texts with these keys; fewer if some are gone."""

    @abstractmethod
    def entry(self, row: Row) -> Entry:
        """The row's texts."""

    def parts(self, text: Text, embedder: Embedder) -> list[str]:
        """What this model embeds of a text."""
        return text_parts(text.said, token_offsets=embedder.token_offsets, max_tokens=embedder.max_tokens)


def content_hash(text: str) -> bytes:
    """BLAKE2b-128: 16 bytes that tell whether a part has changed since its vector was asked for."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
