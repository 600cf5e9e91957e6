"""The corpora of the index, and the scope of a search: one user's texts of some corpora and days."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import models

from intake.models import User

Key = tuple[UUID, int]
"""How a text is named: by its source and its place in it, for chat the conversation and the turn number."""

PlainKey = tuple[str, int]
"""The same with the source as text: a search looks hundreds of them up, and a UUID works out its hash every time."""


class Corpus(models.TextChoices):
    CHAT = "chat"
    MEMORY = "memory", "MEMORY.md"
    DAILY_LOG = "daily_log"
    RECORD = "record"


@dataclass(frozen=True, slots=True)
class Scope:
    """One user's texts of some corpora and a time: `since` is inclusive, `until` exclusive, None is open."""

    user: User
    corpora: tuple[Corpus, ...]
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_dated(self) -> bool:
        return self.since is not None or self.until is not None

    def parameters(self) -> dict[str, Any]:
        """The named parameters of the statements on vectors and terms."""
        return {
            "user_id": self.user.pk,
            "corpora": list(self.corpora),
            "since": self.since or "-infinity",
            "until": self.until or "infinity",
        }


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the index: one text's, or all of a source's if no chunk is named."""

    user_id: int
    corpus: Corpus
    source_id: UUID
    chunk_index: int | None = None
