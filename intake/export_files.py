"""Exports an account as a streamed zip: Markdown files, or the JSON document alone.

`settings.ACCOUNT_EXPORT_FILES` lists the parts, like `ACCOUNT_EXPORTS`.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string

from core.pg_text import cut
from core.sections import END, write_head, write_section
from core.zip_stream import ArchiveFile, zipped
from intake import exporting
from intake.exporting import ExportEncoder, in_pieces
from intake.models import Conversation, User

NAME_LENGTH = 60
ID_LENGTH = 12
MANY_TURNS = 10_000
# Characters that every file system accepts, besides letters and digits of any script.
_NOT_IN_NAMES = re.compile(r"[^\w ,'()+-]+")


def json_zip(*, user: User, now: datetime) -> Iterator[bytes]:
    """The document of `exporting.account_as_json`, packed."""
    document = exporting.account_as_json(user=user, now=now)
    return zipped([ArchiveFile(name="recollect.json", at=now, pieces=document, may_be_large=True)])


def markdown_zip(*, user: User, now: datetime) -> Iterator[bytes]:
    """A file for each conversation and document, and one for all records. No query is open between two pieces."""
    return zipped(_files(user, now))


def _files(user: User, now: datetime) -> Iterator[ArchiveFile]:
    yield ArchiveFile(name="recollect.json", at=now, pieces=[as_json(exporting.opening(user=user, now=now))])
    for path in settings.ACCOUNT_EXPORT_FILES.values():
        yield from import_string(path)(user=user, now=now)


def conversation_files(*, user: User, now: datetime) -> Iterator[ArchiveFile]:
    """`settings.ACCOUNT_EXPORT_FILES`."""
    for conversation in exporting.in_pages(Conversation.objects.for_user(user).kept()):
        yield ArchiveFile(
            name=f"conversations/{file_name(conversation)}.md",
            at=conversation.last_active_at,
            pieces=conversation_as_markdown(conversation=conversation, user=user),
            may_be_large=conversation.turn_count > MANY_TURNS,
        )


def activity_file(*, user: User, now: datetime) -> Iterator[ArchiveFile]:
    """`settings.ACCOUNT_EXPORT_FILES`: `activity.json`, a list."""
    yield ArchiveFile(name="activity.json", at=now, pieces=exporting.in_bytes(exporting.activity(user=user)))


def conversation_as_markdown(*, conversation: Conversation, user: User) -> Iterator[bytes]:
    """In pieces of about `PIECE` bytes; `imports/reading/products/recollect.py` reads it back."""
    return in_pieces(_conversation(conversation, user))


def file_name(conversation: Conversation) -> str:
    """A name without its extension that sorts by date, is valid on every system, and is unique."""
    title = safe_name(conversation.title) or "Untitled"
    return f"{conversation.started_at:%Y-%m-%d} {title} {short_id(conversation.pk)}"


def short_id(key: UUID) -> str:
    """The random end of an id."""
    return key.hex[-ID_LENGTH:]


def safe_name(title: str) -> str:
    plain = _NOT_IN_NAMES.sub(" ", unicodedata.normalize("NFC", title))
    return cut(" ".join(plain.split()), NAME_LENGTH).strip()


def _conversation(conversation: Conversation, user: User) -> Iterator[str]:
    fields = exporting.conversation_fields(conversation, user)
    turns: Iterator[dict[str, Any]] = fields.pop("turns")
    title = " ".join(conversation.title.split())
    count = exporting.count_turns(conversation, user)
    yield write_head({"recollect": "conversation", **plain(fields), "turn_count": count})
    yield f"\n# {title or 'Untitled'}\n\n"
    for turn in turns:
        yield from _turn(turn)
    yield END


def _turn(turn: dict[str, Any]) -> Iterator[str]:
    said, answered = turn.pop("user_message"), turn.pop("assistant_message")
    heading = f"You, {turn['said_at']:%Y-%m-%d %H:%M} UTC"
    yield write_section("turn", plain(turn), heading=heading, text=said)
    if answered:
        yield write_section("answer", {}, heading="Answer", text=answered)


def as_json(value: Any) -> bytes:
    return json.dumps(value, cls=ExportEncoder, ensure_ascii=False, indent=1).encode()


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with JSON's types only, as in the JSON export."""
    values: dict[str, Any] = json.loads(json.dumps(fields, cls=ExportEncoder))
    return values
