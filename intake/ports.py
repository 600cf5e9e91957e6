"""What the chat and the accounts ask of the apps above, which intake does not import: each app registers its part.

`memory` and `agent_tools` register in their `AppConfig.ready()`. A system check (`intake.E005`) names a part that no
app has registered.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Subquery

from core.isolation.acting import Caller
from core.text import ArchiveFile
from intake.models import Turn, User

if TYPE_CHECKING:
    from pydantic_ai.toolsets import AbstractToolset


@dataclass(frozen=True, slots=True)
class Holdings:
    """The size of one user's data. `bytes`: of text in UTF-8. `vectors_waiting`: passages without a vector.

    `file_bytes`: of attached files, each content once.
    """

    turns: int = 0
    bytes: int = 0
    vectors_waiting: int = 0
    file_bytes: int = 0

    def __add__(self, other: "Holdings") -> "Holdings":
        return Holdings(
            self.turns + other.turns,
            self.bytes + other.bytes,
            self.vectors_waiting + other.vectors_waiting,
            self.file_bytes + other.file_bytes,
        )


class ChatTools(Protocol):
    """The tools of the chat's agent loop."""

    def toolset(self, caller: Caller, *, uses_memory: bool, may_save: bool) -> "AbstractToolset[Any]":
        """No tools without the memory, and none that stores where storing is not allowed."""

    def described(self, caller: Caller, *, uses_memory: bool, may_save: bool) -> str:
        """The same toolset as text, much as a model reads it: by it its tokens are counted."""

    def undo(self, user: User, *, name: str, data: dict[str, Any], place: dict[str, Any], now: datetime) -> None:
        """Undo the data that the call `name(data)` stored at `place`.

        Raises `Conflict` if it has been changed since, `NotFound` if the tool does not exist any more.
        """


class Memory(Protocol):
    """The user's notes and memories: for the model's instructions, for quotas, and for an account's export."""

    def notes(self, *, user: User, project: str = "", length: int) -> str:
        """The beginning of the user's MEMORY.md, or of their project's, at most `length` characters."""

    def about_me(self, *, user: User, length: int) -> str:
        """The beginning of the user's USER.md, at most `length` characters."""

    def is_related(self, *, question: str, distance: float, relevance: float) -> bool:
        """Whether a match of `search_chat_history` is more than chance, by the active model."""

    def recalled(
        self, *, user: User, message: str, conversations: Collection[UUID], among: Collection[tuple[UUID, int]]
    ) -> list[str]:
        """The passages of these turns (conversation, number) of these conversations that a message may be about, the
        most relevant first; empty if the search fails. It searches as the user itself: call it outside a transaction.
        """

    def compared(self, *, question: str, turns: Sequence[Turn]) -> list[tuple[float, Turn]]:
        """Those of these turns that share words with the question, with their relevance from 0 to 1, the best first:
        plain arithmetic over turns that no search finds.
        """

    def home(self, *, user: User, now: datetime, project: str = "") -> list[tuple[str, str, list[tuple[str, str]]]]:
        """What the home page offers to go on with: name and title of each part, with its lines (path, text).

        `project`: only of this one.
        """

    def kept_in_chat(self) -> Subquery:
        """Of a conversation: what was kept from its turns, as a list of `{"turn": number, "id": text}`."""

    def labels_in_use(self, *, user: User) -> dict[str, int]:
        """The number of the user's records and documents of each project that has any."""

    def stored(self, user_id: int) -> Holdings:
        """What counts for the user's quotas."""

    def attachments_waiting(self) -> None:
        """Wake a worker after a commit: files wait to be read, or have got their message. It must not wait itself."""

    def exported(self, *, user: User, project: str | None = None) -> dict[str, Iterator[dict[str, Any]]]:
        """Members of the export's JSON document; each is an array that is written while it is read.

        `project`: what belongs to it, or with a hyphen before the name everything but that.
        """

    def exported_files(self, *, user: User, now: datetime, project: str | None = None) -> Iterator[ArchiveFile]:
        """The same as files of the export's zip."""


Part = TypeVar("Part")


class Port(Generic[Part]):
    """The place of one part, which is loaded at its first use and kept."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.load: Callable[[], Part] | None = None
        self.part: Part | None = None

    def register(self, load: Callable[[], Part]) -> None:
        """`load` returns the part, such as a module with its functions. Raises `ImproperlyConfigured` if one is there.

        Starting a command calls no `load`, so an import within it costs only those who use the part.
        """
        if self.load is not None:
            raise ImproperlyConfigured(f"intake.ports.{self.name} has been registered already.")
        self.load = load

    def get(self) -> Part:
        """Raises `ImproperlyConfigured` if no app has registered it."""
        if self.part is None:
            if self.load is None:
                raise ImproperlyConfigured(f"No app has registered intake.ports.{self.name}.")
            self.part = self.load()
        return self.part


chat_tools: Port[ChatTools] = Port("chat_tools")
memory: Port[Memory] = Port("memory")
