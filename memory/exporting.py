"""The memory's part of an account's export: documents, records, and the proposals that wait."""

from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from itertools import chain
from typing import Any

from core.text import END, ArchiveFile, write_section
from intake.chats.exporting import as_json, in_pages, of_project, plain, safe_name, short_id
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


def exported_files(*, user: User, now: datetime, project: str | None = None) -> Iterator[ArchiveFile]:
    yield from _document_files(user, now, project)
    yield from _section_files("records.md", "Memories", exported_records(user=user, project=project), now)
    yield from _section_files(
        "proposals.md", "Waiting for a decision", exported_proposals(user=user, project=project), now
    )


def exported_documents(*, user: User, project: str | None = None) -> Iterator[dict[str, Any]]:
    for document in _documents(user, project):
        yield {
            "kind": document.kind,
            "date": document.date,
            **({"project": document.project} if document.project else {}),
            **({"id": document.pk, "title": document.title} if document.kind == MemoryDocument.Kind.NOTE else {}),
            "content": document.content,
            "created_at": document.created_at,
            "updated_at": document.updated_at,
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
            "id": record.pk,
            "content": record.content,
            "type": record.type,
            "project_id": record.project_id,
            "tags": record.tags,
            "created_at": record.created_at,
            **{name: fact for name in (*FACTS, "done_at") if (fact := getattr(record, name)) is not None},
        }


def exported_proposals(*, user: User, project: str | None = None) -> Iterator[dict[str, Any]]:
    """Those that wait: what was decided is a record, or was refused."""
    waiting = Proposal.objects.for_user(user).filter(state=WAITING).defer("vector")
    for proposal in in_pages(of_project(waiting, project, field="project_id")):
        yield {
            "id": proposal.pk,
            "content": proposal.content,
            "type": proposal.type,
            "project_id": proposal.project_id,
            "created_at": proposal.created_at,
            **({"quote": proposal.quote} if proposal.quote else {}),
            **{name: fact for name in FACTS_OF_A_PROPOSAL if (fact := getattr(proposal, name)) is not None},
        }


def _document_files(user: User, now: datetime, project: str | None) -> Iterator[ArchiveFile]:
    """Each document unchanged, followed by their times."""
    times = []
    for document in exported_documents(user=user, project=project):
        name, content = _document_name(document), document.pop("content")
        times.append({"file": name, **document})
        yield ArchiveFile(name=name, at=document["updated_at"], pieces=[content.encode()])
    if times:
        yield ArchiveFile(name="documents.json", at=now, pieces=[as_json({"documents": times})])


def _document_name(document: dict[str, Any]) -> str:
    kind, project = document["kind"], document.get("project", "")
    if project and kind != MemoryDocument.Kind.NOTE:
        # Two labels may be the same without the characters that a file's name cannot have.
        digest = sha256(project.encode()).hexdigest()[:8]
        day = f" {document['date']}" if document["date"] else ""
        return f"projects/{safe_name(project) or 'Unnamed'} {digest}{day}.md"
    match kind:
        case MemoryDocument.Kind.NOTE:
            return f"notes/{safe_name(document['title']) or 'Untitled'} {short_id(document['id'])}.md"
        case MemoryDocument.Kind.DAILY_LOG:
            return f"memory/{document['date']}.md"
        case MemoryDocument.Kind.ABOUT:
            return "USER.md"
    return "MEMORY.md"


def _section_files(name: str, title: str, rows: Iterator[dict[str, Any]], now: datetime) -> Iterator[ArchiveFile]:
    """All records, or all proposals, as the sections of one file. Its name tells them apart."""
    sections = map(_section, rows)
    first = next(sections, None)
    if first is not None:
        texts = chain([f"# {title}\n\n", first], sections, [END])
        yield ArchiveFile(name=name, at=now, pieces=(text.encode() for text in texts))


def _section(row: dict[str, Any]) -> str:
    content = row.pop("content")
    heading = f"{row['type']}, {row['created_at']:%Y-%m-%d %H:%M} UTC"
    return write_section("record", plain(row), heading=heading, text=content)
