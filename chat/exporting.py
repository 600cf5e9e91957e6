"""Exports an account, what was said and what is kept, streamed: as JSON to return, or as Markdown to read."""

from collections.abc import Iterator
from datetime import datetime
from itertools import chain
from typing import Any

from core.zip_stream import ArchiveFile, zipped
from imports.reading.products.recollect import FOR_READING
from intake.chats import exporting
from intake.chats.markdown_files import conversation_files, section
from intake.models import User
from memory.exporting import exported, exported_files


def account_as_json(*, user: User, now: datetime, project: str | None = None) -> Iterator[bytes]:
    """The document in UTF-8. No query or transaction is open between two pieces.

    It names attached files; the bytes stand beside it in a zip. `project`: what belongs to it, or with a hyphen before
    the name everything but that; then without the profile, the activity and the tools, which are of no project.
    """
    parts: dict[str, Any] = {"conversations": exporting.conversations(user=user, project=project)}
    parts |= exported(user=user, project=project)
    if project is None:
        parts |= {"activity": exporting.activity(user=user), "tools": exporting.tools(user=user)}
    return exporting.in_bytes({**exporting.opening(user=user, now=now, project=project), **parts})


def json_zip(*, user: User, now: datetime, project: str | None = None) -> Iterator[bytes]:
    """The document of `account_as_json`, packed with the attached files."""
    document = account_as_json(user=user, now=now, project=project)
    whole = ArchiveFile(name="recollect.json", at=now, pieces=document, may_be_large=True)
    return zipped(chain([whole], exporting.attached_files(user=user, project=project)))


def markdown_zip(*, user: User, now: datetime, project: str | None = None) -> Iterator[bytes]:
    """Files for people: one for each conversation and document, and one for all records.

    No query is open between two pieces.
    """
    return zipped(_files(user, now, project))


def _files(user: User, now: datetime, project: str | None) -> Iterator[ArchiveFile]:
    head = exporting.opening(user=user, now=now, project=project)
    about = section(
        f"Recollect, {now:%Y-%m-%d %H:%M} UTC",
        FOR_READING,
        level=1,
        **head.get("profile", {}),
    )
    for each in head.get("projects", []):
        labels, is_closed = each["labels"], each["is_closed"] or None
        about += section(f"Project {each['name']}", each["instructions"], labels=labels, is_closed=is_closed)
    yield ArchiveFile(name="README.md", at=now, pieces=[about.encode()])
    yield from conversation_files(user=user, project=project)
    yield from exporting.attached_files(user=user, project=project)
    yield from exported_files(user=user, now=now, project=project)
    if project is None:
        yield ArchiveFile(name="activity.json", at=now, pieces=exporting.in_bytes(exporting.activity(user=user)))
        yield ArchiveFile(name="tools.json", at=now, pieces=exporting.in_bytes(exporting.tools(user=user)))
