"""The items that every reader yields: conversations, documents, and skipped items with the reason.

Pure data, without a database. Times are aware datetimes in UTC; None means that the export has none.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

Role = Literal["user", "assistant"]


class UnreadableExport(Exception):
    """The export cannot be read: one sentence for the user that says what it is and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """A file of a message: its `text`, or the `entry` of the export that has its bytes (`Files.open`).

    A text that also stands in its message, such as a pasted block, is stored as a file and taken out of the message.
    """

    name: str
    text: str = ""
    entry: str = ""
    # How its message names it (`attachments`), if not by its name.
    named_as: str = ""
    # In bytes.
    size: int = 0
    media_type: str = ""
    # Only for Recollect's own export: it keeps its id with a `proof` that it was this account's.
    id: UUID | None = None
    proof: str = ""
    kind: str = ""
    # Of a page that was read.
    address: str = ""
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMessage:
    """One visible message. `parent` is the id of the nearest visible message above it, in any branch."""

    id: str
    parent: str | None = None
    role: Role
    text: str
    at: datetime | None = None
    # The source has no usable time here; `at` is that of the previous message.
    at_inferred: bool = False
    model: str = ""
    # The names of what was attached, also of what the export does not have.
    attachments: tuple[str, ...] = ()
    # What the export has of it, and what was written beside the message: an artifact, a canvas.
    files: tuple[ImportedFile, ...] = ()
    # Calls and reasoning of an answer in the export: `{name, input?, summary?}`, shown folded, never indexed.
    tool_calls: tuple[dict[str, Any], ...] = ()
    # An answer to a program's own prompt, which is hidden: it does not belong to the message before it.
    is_unasked: bool = False
    # Nothing but the questions of a call. A reply ends its turn, which is named as one without an answer.
    only_asks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedTurn:
    """A turn of Recollect's own export, to be stored with the same number, status and time."""

    turn_number: int
    # The number of the turn that this one follows; None for a first one. Turns of one parent are versions.
    parent_number: int | None
    user_message: str
    assistant_message: str
    said_at: datetime
    # `complete`, `interrupted` or `failed`: an answer that was running during the export is interrupted.
    status: str
    is_recall: bool = False
    tool_calls: tuple[Any, ...] = ()
    error: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    reasoning: str = ""
    attachments: tuple[ImportedFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedConversation:
    """The fields of a conversation in Recollect's own export, all of which are stored.

    `source` and `external_id` are those of its original product; its own id is the imported `external_id`.
    """

    id: UUID
    source: str
    external_id: str
    project: str = ""
    started_at: datetime
    last_active_at: datetime
    # `line`, `model` or `person`; empty: not said.
    titled_by: str = ""
    pinned_at: datetime | None = None
    archived_at: datetime | None = None
    # The turn at the end of the chosen path; None: no path was chosen.
    current_number: int | None = None
    # For a branch: the conversation and the turn from which it continues.
    branched_from: UUID | None = None
    branched_after: int | None = None
    # The settings for its answers.
    model: str = ""
    instructions: str = ""
    temperature: float | None = None
    uses_memory: bool = True
    # By which the server that wrote the export knows it again as this user's; empty: not said.
    proof: str = ""
    # In the order of their numbers, which may have gaps.
    turns: tuple[ExportedTurn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedConversation:
    """A conversation: `messages` is the current branch in order, `other_branches` all other visible messages, each
    after its parent. If the export has no id, the reader makes one that depends only on the content.
    """

    product: str
    external_id: str
    # Other ids of the same conversation: a resumed or forked session.
    also_ids: tuple[str, ...] = ()
    title: str | None
    created_at: datetime | None
    last_at: datetime | None
    is_archived: bool = False
    # It was deleted, or all of it taken back, in its product, which kept a copy: listed, and not chosen by itself.
    is_deleted: bool = False
    project: str | None = None
    messages: tuple[ImportedMessage, ...]
    other_branches: tuple[ImportedMessage, ...] = ()
    # Only for Recollect's own export: its turns are stored instead of `messages`, which contain the same.
    exported: ExportedConversation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDocument:
    """A note or a product's own memory. `external_id` is its path within the export, its uuid, or `memory:…`."""

    product: str
    external_id: str
    title: str
    text: str
    at: date | datetime | None = None
    # `memory` and `about` merge into the user's MEMORY.md and USER.md, `daily_log` into the log of the day `at`.
    kind: Literal["note", "memory", "about", "daily_log"] = "note"
    # Only for Recollect's own export: a missing document is created with these and the unchanged text; a note with its
    # id.
    id: UUID | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    # The name of its project, or a folder's that belongs to one; empty for none.
    project: str = ""
    # The product's account that it is the memory of: two accounts use the same ids.
    account: str = ""
    # The values of a note's head, such as its aliases, and what else is said about it. Stored below its text.
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedRecord:
    """A memory record of Recollect's own export. Its `id` is kept, so that importing the export again adds nothing.

    `is_proposed`: it waits for its person to decide, and `quote` are their words that say it.
    """

    product: str
    id: UUID
    content: str
    type: str
    project_id: str = ""
    tags: tuple[str, ...] = ()
    created_at: datetime
    replaces: UUID | None = None
    valid_from: date | None = None
    valid_until: date | None = None
    done_at: datetime | None = None
    source_conversation: UUID | None = None
    source_turn: int | None = None
    is_proposed: bool = False
    quote: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedProject:
    """What Recollect's own export says of a project, whose chats, records and documents name it themselves.

    `proof`: by which the server that wrote the export knows it again as this user's, and so keeps its instructions.
    """

    product: str
    id: UUID
    name: str
    colour: str = ""
    instructions: str = ""
    is_closed: bool = False
    labels: tuple[str, ...] = ()
    created_at: datetime
    proof: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A skipped item: its position in the export (`file.json:12`), and the reason for the user."""

    where: str
    reason: str
    external_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Information for the user about how the export was read, such as a grouping by time."""

    text: str


Item = ImportedConversation | ImportedDocument | ImportedRecord | ImportedProject | Skipped | Notice
Items = Iterator[Item]
