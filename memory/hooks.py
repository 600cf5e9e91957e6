"""`intake.ports.Memory`: notes for the chat, the size of the memory, and the export."""

import logging
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db import DatabaseError, connection
from django.db.models import Count, OuterRef, Subquery
from django.db.models.functions import JSONObject

from core.errors import RecollectError
from core.text import END, ArchiveFile, write_section
from intake.chats.exporting import as_json, in_pages, of_project, plain, safe_name, short_id
from intake.models import User
from intake.ports import Holdings
from memory import documents
from memory.backends.embedders import UNCALIBRATED, get_embedder
from memory.index.writer import Waker
from memory.models import MemoryDocument, MemoryRecord, Proposal
from memory.models.documents import ABOUT_ME, WAITING, Key
from memory.records import FACTS
from memory.search import unindexed
from memory.search.chat_history import search_conversations
from memory.search.sources import least_likely

logger = logging.getLogger(__name__)

_STORED = """
SELECT (SELECT coalesce(sum(octet_length(content)), 0) FROM memory_documents WHERE user_id = %(user_id)s)
     + (SELECT coalesce(sum(octet_length(content)), 0) FROM memory_document_versions WHERE user_id = %(user_id)s)
     + (SELECT coalesce(sum(octet_length(content)), 0) FROM memory_records WHERE user_id = %(user_id)s),
       (SELECT count(*) FROM embeddings
         WHERE user_id = %(user_id)s AND vector IS NULL AND quarantined_at IS NULL)
"""
# Of a message, the characters that are searched, and how many passages it gets.
LONGEST_ASKED, MOST_RECALLED = 500, 8
# A document may have half a million characters.
DOCUMENTS_AT_ONCE = 10
DIGITS_OF_A_LABEL = 8
# Only some proposals have them.
FACTS_OF_A_PROPOSAL = ("replaces", "source_conversation", "source_turn")


# Reads the files that wait, and indexes what it has read.
attachments_waiting = Waker("memory.read_attachments").wake_worker
notes = partial(documents.beginning, day=None)
about_me = partial(documents.beginning, day=ABOUT_ME)
compared = unindexed.compared


def home(*, user: User, now: datetime, project: str = "") -> list[tuple[str, str, list[tuple[str, str]]]]:
    # The pages import the forms, which a worker never needs.
    from memory.pages.home import home as parts

    return parts(user=user, now=now, project=project)


def kept_in_chat() -> Subquery:
    kept = MemoryRecord.objects.filter(user_id=OuterRef("user_id"), source_conversation=OuterRef("pk"))
    return ArraySubquery(kept.order_by("created_at").values(each=JSONObject(turn="source_turn", id="id")))


def labels_in_use(*, user: User) -> dict[str, int]:
    records = MemoryRecord.objects.for_user(user).exclude(project_id="").values_list("project_id")
    mine = MemoryDocument.objects.for_user(user).exclude(project="").values_list("project")
    counts = Counter(dict(records.annotate(number=Count("pk"))))
    counts.update(dict(mine.annotate(number=Count("pk"))))
    return dict(counts)


def is_related(*, question: str, distance: float, relevance: float) -> bool:
    far = (get_embedder().calibration or UNCALIBRATED).far
    return distance <= far or relevance >= least_likely(question)


def recalled(*, user: User, message: str, conversations: Collection[UUID], among: Collection[Key]) -> list[str]:
    """Long messages are searched by both ends, where people ask."""
    half = LONGEST_ASKED // 2
    asked = message if len(message) <= LONGEST_ASKED else f"{message[:half]}\n{message[-half:]}"
    try:
        found = search_conversations(
            user=user, message=asked, conversations=conversations, among=among, limit=MOST_RECALLED
        )
    except (RecollectError, DatabaseError) as error:
        logger.warning("What does not fit into a prompt is not searched (%s)", type(error).__name__)
        return []
    return [f"Message {hit.key[1]}, {user.local_time(hit.at):%d %B %Y}:\n{passage}" for hit, passage in found]


def stored(user_id: int) -> Holdings:
    """Documents with their earlier versions, records, and waiting vectors."""
    with connection.cursor() as cursor:
        cursor.execute(_STORED, {"user_id": user_id})
        size, waiting = cursor.fetchone()
    return Holdings(bytes=int(size), vectors_waiting=waiting)


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
            **_name_of_a_note(document),
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


def _name_of_a_note(document: MemoryDocument) -> dict[str, Any]:
    """All other kinds exist once in a project, so kind, day and project are their name."""
    return {"id": document.pk, "title": document.title} if document.kind == MemoryDocument.Kind.NOTE else {}


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
        digest = sha256(project.encode()).hexdigest()[:DIGITS_OF_A_LABEL]
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
