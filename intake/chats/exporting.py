"""Exports chats and the account's own settings as JSON, in pieces, with only a small part in memory.

Each part is a function that yields JSON values. An iterator inside a value becomes an array that is written while it is
read. `markdown_files.py` beside this writes what people read.
"""

import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, QuerySet
from django.dispatch import Signal
from django.utils.crypto import constant_time_compare, salted_hmac

from core.isolation.acting import acting_as
from core.text import cut, without_values
from core.zip_stream import ArchiveFile
from intake.attachments.services import attachments_of, pages_of, pieces_of
from intake.models import (
    ActivityEntry,
    Attachment,
    ChatPreferences,
    Conversation,
    PausedTurn,
    Project,
    ToolConsent,
    ToolLogin,
    ToolServer,
    Turn,
    User,
)

ExportedRow = TypeVar("ExportedRow", bound=Model)

# Its receivers return further fields of a turn.
turn_exported = Signal()

# The reader of exports recognises our own export by this (imports/reading/products/recollect.py).
FORMAT = "recollect-export-1"

# The number of rows per query, and of bytes per piece.
PAGE = 200
PIECE = 64 * 1024
# Characters that every file system accepts, besides letters and digits of any script.
_NOT_IN_NAMES = re.compile(r"[^\w ,'()+-]+")


class ExportEncoder(DjangoJSONEncoder):
    """Times to the microsecond, as in the database."""

    def default(self, value: Any) -> Any:
        if isinstance(value, datetime):
            return value.isoformat().removesuffix("+00:00") + "Z" if not value.utcoffset() else value.isoformat()
        return super().default(value)


def chats_as_json(*, user: User, chosen: Collection[UUID], now: datetime) -> Iterator[bytes]:
    """A document of the same shape with these conversations alone."""
    some = conversations(user=user, chosen=chosen)
    return in_bytes({"format": FORMAT, "exported_at": now, "conversations": some})


def opening(*, user: User, now: datetime, project: str | None = None) -> dict[str, Any]:
    """The beginning of every export."""
    with acting_as(user):
        preferences = ChatPreferences.objects.for_user(user).first() or ChatPreferences()
        rows = of_project(Project.objects.for_user(user), project, field="name")
        projects = [_project(each, user) for each in rows.order_by("name")]
    head = {"format": FORMAT, "exported_at": now}
    named = {"projects": projects} if projects else {}
    if project is not None:
        return {**head, **named}
    profile = {
        **named_fields(user, "email", "time_zone", "language", "joined_at"),
        **named_fields(preferences, "model", "how_to_answer"),
    }
    return {**head, "profile": profile, **named}


def of_project(
    rows: "QuerySet[ExportedRow]", project: str | None, *, field: str = "project"
) -> "QuerySet[ExportedRow]":
    """The rows of a project, or with a hyphen before the name all others. An export has closed projects too."""
    if project is None:
        return rows
    named = {field: project.removeprefix("-")}
    return rows.exclude(**named) if project.startswith("-") else rows.filter(**named)


def _project(project: Project, user: User) -> dict[str, Any]:
    """What its person says of a label; the chats, records and documents name the label themselves."""
    return {
        **named_fields(project, "id", "name", "colour", "instructions", "is_closed", "labels", "created_at"),
        "proof": proof_of(user, project.pk, project.instructions),
    }


def named_fields(row: Model, *names: str) -> dict[str, Any]:
    """The fields of a row that are exported under their own names."""
    return {name: getattr(row, name) for name in names}


def in_bytes(value: Any) -> Iterator[bytes]:
    """The value as JSON; its iterators become arrays."""
    return in_pieces(_encode(value))


def in_pieces(texts: Iterable[str]) -> Iterator[bytes]:
    """The texts as UTF-8, gathered into pieces of about `PIECE` bytes."""
    gathered = bytearray()
    for text in texts:
        # A lone surrogate has no UTF-8; no text in the database contains one.
        gathered += text.encode()
        if len(gathered) >= PIECE:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered)


def conversations(
    *, user: User, chosen: Collection[UUID] | None = None, project: str | None = None
) -> Iterator[dict[str, Any]]:
    """All conversations, the chosen ones, or those of a project; `turns` of each is an iterator."""
    rows = of_project(Conversation.objects.for_user(user).kept(), project)
    for conversation in in_pages(rows if chosen is None else rows.filter(pk__in=chosen)):
        yield {
            **named_fields(conversation, "id", "title", "titled_by", "source", "external_id", "project"),
            **named_fields(conversation, "started_at", "last_active_at", "pinned_at", "archived_at"),
            **named_fields(conversation, "current_number", "branched_from", "branched_after"),
            **named_fields(conversation, "model", "instructions", "temperature", "uses_memory"),
            "proof": proof_of(user, conversation.pk, conversation.instructions),
            "turns": turns_of(conversation, user),
        }


def proof_of(user: User, row_id: UUID, instructions: str) -> str:
    """Says in an export that this user had the chat, file or project with these instructions: its import keeps both."""
    signed = f"{user.pk}:{row_id}:{instructions}"
    return salted_hmac("recollect.exported_conversation", signed, algorithm="sha256").hexdigest()


def is_own(user: User, row_id: UUID, instructions: str, *, proof: str) -> bool:
    return constant_time_compare(proof_of(user, row_id, instructions), proof)


def activity(*, user: User) -> Iterator[dict[str, Any]]:
    """The account's activity log, which an import ignores."""
    for entry in in_pages(ActivityEntry.objects.for_user(user), key="id"):
        yield named_fields(entry, "at", "what", "count", "device")


def tools(*, user: User) -> dict[str, Any]:
    """The servers of tools, the log-ins there, what was allowed and what waits, without keys and tokens. An import
    ignores it.
    """

    def each(rows: "QuerySet[ExportedRow]", *names: str) -> Iterator[dict[str, Any]]:
        for row in in_pages(rows):
            yield {name: getattr(row, name) for name in names}

    return {
        "servers": each(
            ToolServer.objects.for_user(user), "name", "address", "header", "client_id", "tools", "created_at"
        ),
        "logins": each(ToolLogin.objects.for_user(user), "address", "connected_at"),
        "allowed": each(ToolConsent.objects.for_user(user), "address", "tool", "conversation_id", "created_at"),
        "waiting": each(PausedTurn.objects.for_user(user), "turn_id", "calls", "until"),
    }


def in_pages(rows: "QuerySet[ExportedRow]", *, key: str = "pk") -> Iterator[ExportedRow]:
    """All rows in the order of a unique key, one page per query, so that no query stays open."""
    page = list(rows.order_by(key)[:PAGE])
    while page:
        yield from page
        last = getattr(page[-1], key)
        page = list(rows.filter(**{f"{key}__gt": last}).order_by(key)[:PAGE]) if len(page) == PAGE else []


def turns_of(conversation: Conversation, user: User) -> Iterator[dict[str, Any]]:
    for turn in in_pages(Turn.objects.for_user(user).filter(conversation=conversation), key="turn_number"):
        further: list[Any] = [fields for _, fields in turn_exported.send(Turn, turn=turn, user=user)]
        yield {
            **named_fields(turn, "turn_number", "parent_number", "said_at"),
            **named_fields(turn, "user_message", "assistant_message", "reasoning"),
            "tool_calls": [without_values(call) for call in turn.tool_calls],
            **named_fields(turn, "status", "is_recall"),
            "error": turn.error and without_values(turn.error),
            "usage": turn.usage,
            **_attachments(turn, user),
            **{name: value for fields in further for name, value in fields.items()},
        }


def _attachments(turn: Turn, user: User) -> dict[str, Any]:
    """The files of a turn that has some, each with its name in the zip."""
    found = [*attachments_of([turn])[turn.pk], *pages_of(turn)]
    return {"attachments": [_attachment(each, user) for each in found]} if found else {}


def _attachment(attachment: Attachment, user: User) -> dict[str, Any]:
    return {
        **named_fields(attachment, "id", "name", "media_type", "size", "sha256", "kind"),
        **({"address": attachment.address} if attachment.address else {}),
        "file": attached_name(attachment),
        "created_at": attachment.created_at,
        "proof": proof_of(user, attachment.pk, ""),
    }


def attached_name(attachment: Attachment) -> str:
    """The name of an attached file in the zip: unique, and with the file's own ending."""
    stem, dot, ending = attachment.name.rpartition(".")
    name = safe_name(stem or ending) or "file"
    return f"attachments/{short_id(attachment.pk)} {name}{dot if stem else ''}{safe_name(ending) if stem else ''}"


def attached_files(*, user: User, project: str | None = None) -> Iterator[ArchiveFile]:
    """The files of all kept chats, or of those of a project, each as its message has it."""
    for conversation in in_pages(of_project(Conversation.objects.for_user(user).kept(), project)):
        mine = Attachment.objects.for_user(user).filter(conversation_id=conversation.pk)
        for attachment in in_pages(mine):
            pieces = pieces_of(attachment)
            yield ArchiveFile(name=attached_name(attachment), at=attachment.created_at, pieces=pieces)


def _encode(value: Any) -> Iterator[str]:
    """Like `json.dumps`, in pieces where the value holds iterators."""
    if isinstance(value, Iterator):
        yield from _enclosed("[", (_encode(item) for item in value), "]")
    elif isinstance(value, Mapping) and any(isinstance(item, Iterator) for item in value.values()):
        yield from _enclosed("{", (_member(name, item) for name, item in value.items()), "}")
    else:
        yield json.dumps(value, cls=ExportEncoder, ensure_ascii=False)


def _member(name: str, value: Any) -> Iterator[str]:
    yield json.dumps(name) + ": "
    yield from _encode(value)


def _enclosed(opening: str, items: Iterable[Iterator[str]], closing: str) -> Iterator[str]:
    separator = opening + "\n"
    empty = True
    for item in items:
        yield separator
        yield from item
        separator, empty = ",\n", False
    yield opening + closing if empty else "\n" + closing


def file_name(conversation: Conversation) -> str:
    """A name without its extension that sorts by date, is valid on every system, and is unique."""
    title = safe_name(conversation.title) or "Untitled"
    return f"{conversation.started_at:%Y-%m-%d} {title} {short_id(conversation.pk)}"


def short_id(key: UUID) -> str:
    """The random end of an id."""
    return key.hex[-12:]


def safe_name(title: str) -> str:
    plain = _NOT_IN_NAMES.sub(" ", unicodedata.normalize("NFC", title))
    return cut(" ".join(plain.split()), 60).strip()
