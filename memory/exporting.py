"""The memory's part of an account's export: documents, records, and the proposals that wait, as JSON or Markdown."""

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from itertools import chain
from typing import Any

from core.zip_stream import ArchiveFile
from intake.chats.exporting import in_pages, named_fields, of_project, safe_name, short_id
from intake.chats.markdown_files import section
from intake.models import User
from memory.models import MemoryDocument, MemoryRecord, Proposal
from memory.models.documents import WAITING
from memory.records import FACTS

# A document may have half a million characters.
DOCUMENTS_AT_ONCE = 10
# Only some proposals have them.
FACTS_OF_A_PROPOSAL = ("replaces", "source_conversation", "source_turn")


def exported(*, user: User, project: str | None = None) -> dict[str, Iterator[dict[str, Any]]]:
    return {
        "documents": exported_documents(user=user, project=project),
        "records": exported_records(user=user, project=project),
        "proposals": exported_proposals(user=user, project=project),
    }


def exported_documents(*, user: User, project: str | None = None) -> Iterator[dict[str, Any]]:
    for document in _documents(user, project):
        yield {
            **named_fields(document, "kind", "date"),
            **({"project": document.project} if document.project else {}),
            **({"id": document.pk, "title": document.title} if document.kind == MemoryDocument.Kind.NOTE else {}),
            **named_fields(document, "content", "created_at", "updated_at"),
        }


def _documents(user: User, project: str | None) -> Iterator[MemoryDocument]:
    """By kind and day, so that two exports have the same order."""
    mine = of_project(MemoryDocument.objects.for_user(user), project)
    keys = list(mine.order_by("kind", "date", "project", "pk").values_list("pk", flat=True))
    for start in range(0, len(keys), DOCUMENTS_AT_ONCE):
        page = mine.in_bulk(keys[start : start + DOCUMENTS_AT_ONCE])
        yield from (page[key] for key in keys[start : start + DOCUMENTS_AT_ONCE] if key in page)


def exported_records(*, user: User, project: str | None = None) -> Iterator[dict[str, Any]]:
    for record in in_pages(of_project(MemoryRecord.objects.for_user(user), project, field="project_id")):
        yield {
            **named_fields(record, "id", "content", "type", "project_id", "tags", "created_at"),
            **{name: fact for name in (*FACTS, "done_at") if (fact := getattr(record, name)) is not None},
        }


def exported_proposals(*, user: User, project: str | None = None) -> Iterator[dict[str, Any]]:
    """Those that wait: what was decided is a record, or was refused."""
    waiting = Proposal.objects.for_user(user).filter(state=WAITING).defer("vector")
    for proposal in in_pages(of_project(waiting, project, field="project_id")):
        yield {
            **named_fields(proposal, "id", "content", "type", "project_id", "created_at"),
            **({"quote": proposal.quote} if proposal.quote else {}),
            **{name: fact for name in FACTS_OF_A_PROPOSAL if (fact := getattr(proposal, name)) is not None},
        }


def exported_files(*, user: User, now: datetime, project: str | None = None) -> Iterator[ArchiveFile]:
    """Each document unchanged, then all records and all proposals in a file of their own."""
    for document in _documents(user, project):
        yield ArchiveFile(name=_file_name(document), at=document.updated_at, pieces=[document.content.encode()])
    for name, title, rows in (
        ("records.md", "Memories", exported_records(user=user, project=project)),
        ("proposals.md", "Waiting for a decision", exported_proposals(user=user, project=project)),
    ):
        if (first := next(rows, None)) is not None:
            texts = chain([section(title, level=1)], map(_section, chain([first], rows)))
            yield ArchiveFile(name=name, at=now, pieces=(text.encode() for text in texts))


def _file_name(document: MemoryDocument) -> str:
    kind, project = document.kind, document.project
    if kind == MemoryDocument.Kind.NOTE:
        return f"notes/{safe_name(document.title) or 'Untitled'} {short_id(document.pk)}.md"
    if project:
        # Two labels may be the same without the characters that a file's name cannot have.
        digest = sha256(project.encode()).hexdigest()[:8]
        day = f" {document.date}" if document.date else ""
        return f"projects/{safe_name(project) or 'Unnamed'} {digest}{day}.md"
    if kind == MemoryDocument.Kind.DAILY_LOG:
        return f"memory/{document.date}.md"
    return "USER.md" if kind == MemoryDocument.Kind.ABOUT else "MEMORY.md"


def _section(row: dict[str, Any]) -> str:
    row = {name: value for name, value in row.items() if name not in ("id", "replaces", "source_conversation")}
    heading = f"{row.pop('type')}, {row.pop('created_at'):%Y-%m-%d %H:%M} UTC"
    return section(heading, row.pop("content"), **row)
