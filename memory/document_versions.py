"""Keeps earlier versions of documents: `documents.replace` stores them, the pages show and compare them."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from difflib import SequenceMatcher
from enum import Enum
from typing import Any, cast
from uuid import UUID

from django.db.models.functions import Length

from core.errors import NotFound
from intake.models import User
from memory.models import MemoryDocument, MemoryDocumentVersion

# The limit per document; the oldest are deleted first.
KEPT = 50
# Unchanged lines shown around a change.
AROUND = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierVersion:
    """An earlier version without its text; `length` in characters."""

    version: int
    written_at: datetime
    length: int


class Change(Enum):
    """One line of a comparison; `GAP` stands for unchanged lines, and has no text."""

    KEPT = "kept"
    REMOVED = "removed"
    ADDED = "added"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class DiffLine:
    change: Change
    text: str = ""


def keep(document: MemoryDocument) -> None:
    """Keep the contents of this row before it is overwritten; in the caller's transaction, which has locked the row."""
    MemoryDocumentVersion.objects.create(
        user_id=document.user_id,
        document_id=document.pk,
        version=document.version,
        content=document.content,
        written_at=document.updated_at,
    )
    mine = MemoryDocumentVersion.objects.filter(user_id=document.user_id, document_id=document.pk)
    kept = mine.order_by("-version").values("pk")[:KEPT]
    mine.exclude(pk__in=kept).delete()


def list_versions(*, user: User, document_id: UUID) -> list[EarlierVersion]:
    """The latest first, without their texts."""
    found = MemoryDocumentVersion.objects.for_user(user).filter(document_id=document_id).order_by("-version")
    rows = found.annotate(length=Length("content")).values("version", "written_at", "length")
    return [EarlierVersion(**cast("dict[str, Any]", row)) for row in rows]


def read(*, user: User, document_id: UUID, version: int) -> MemoryDocumentVersion:
    """Raises `NotFound`."""
    found = MemoryDocumentVersion.objects.for_user(user).filter(document_id=document_id, version=version).first()
    if found is None:
        raise NotFound
    return found


def difference(before: str, after: str) -> Iterator[DiffLine]:
    """The removed and added lines, each with some lines around it; empty if both are equal."""
    old, new = before.splitlines(), after.splitlines()
    end = 0
    for group in SequenceMatcher(a=old, b=new).get_grouped_opcodes(AROUND):
        if group[0][1] > end:
            yield DiffLine(Change.GAP)
        end = group[-1][2]
        for tag, old_start, old_stop, new_start, new_stop in group:
            if tag == "equal":
                yield from (DiffLine(Change.KEPT, line) for line in old[old_start:old_stop])
                continue
            yield from (DiffLine(Change.REMOVED, line) for line in old[old_start:old_stop])
            yield from (DiffLine(Change.ADDED, line) for line in new[new_start:new_stop])
    if 0 < end < len(old):
        yield DiffLine(Change.GAP)
