"""What a source of `search_history` is: it finds hits by its own measure, and reads the texts of those that may win."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import ClassVar
from uuid import UUID
from zoneinfo import ZoneInfo

from intake.models import User
from memory.embedders.base import Vector
from memory.models.corpora import Key
from memory.search.history.passages import Part
from memory.search.history.requests import HistoryScope, Period


class Kind(StrEnum):
    """What a result is, in the contract's words."""

    MEMORY = "memory"
    DAILY_LOG = "daily_log"
    MESSAGE = "message"
    SESSION = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What every source is told: whose rows, what for, of which time; the query's vector, and whose model made it."""

    user: User
    query: str
    scope: HistoryScope
    period: Period
    zone: ZoneInfo
    vector: Vector
    model: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A text that a source found. `raw` is the source's own measure: at least 0, higher is better."""

    source: str
    key: Key
    raw: float
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where a result is from. `day` is the person's own; `session` is the title of the conversation."""

    kind: Kind
    day: date
    conversation_id: UUID | None = None
    turn_number: int | None = None
    session: str | None = None
    document_id: UUID | None = None
    record_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """The text of a hit. Of some only the parts that match are shown."""

    reference: Reference
    parts: Sequence[Part]
    only_matching: bool = False


class Source(ABC):
    name: ClassVar[str]
    """As in `settings.HISTORY_WEIGHTS`, and in the note that says that it was not searched to the end."""

    @abstractmethod
    def find(self, asked: Asked) -> list[Hit]:
        """Rows of the caller's alone, in no order."""

    @abstractmethod
    def read(self, keys: Sequence[Key], asked: Asked) -> Mapping[Key, Passage]:
        """Without those that are gone meanwhile."""
