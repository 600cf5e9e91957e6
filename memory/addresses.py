"""The addresses of what is kept and of what was found, as pages, tools and the context name them."""

from urllib.parse import quote, unquote
from uuid import UUID

from django.urls import reverse

from core.errors import NotFound
from intake.chats.tree import conversation_path
from memory.models import MemoryDocument
from memory.models.documents import ABOUT_ME, DocumentDay
from memory.search.sources import Reference


def path_to(reference: Reference, *, words: str = "") -> str:
    """The address of the text. `words`: some of a message's words, at which a long one opens."""
    if reference.conversation_id is not None:
        return conversation_path(reference.conversation_id, turn_number=reference.turn_number, words=words)
    if reference.record_id is not None:
        return record_path(reference.record_id)
    if reference.is_note and reference.document_id is not None:
        return note_path(reference.document_id)
    if reference.document == MemoryDocument.Kind.ABOUT.label:
        return document_path(ABOUT_ME)
    return document_path(reference.day if reference.kind == "daily_log" else None, project=reference.project)


def document_path(day: DocumentDay, doing: str = "", *, project: str = "") -> str:
    """The address of a document, or of an action on it: `edit`, `history`; for a log also `move` and `delete`."""
    name = f"{doing}_" if doing else ""
    query = {"project": project} if project else None
    match day:
        case None:
            return reverse(f"memory:{name}memory", query=query)
        case str():
            return reverse(f"memory:{name}about")
    return reverse(f"memory:{name}log", args=[day.isoformat()], query=query)


def note_path(note_id: UUID) -> str:
    return reverse("memory:note", args=[note_id])


def page_path(attachment_id: UUID, part: int = 0) -> str:
    """A page of the web that was read, at a passage."""
    return f"{reverse('memory:page', args=[attachment_id])}#part-{part}"


def record_path(record_id: UUID) -> str:
    return reverse("memory:record", args=[record_id])


def project_key(name: str) -> str:
    """A project's name as a part of an address: readable, without a slash, and no folder such as `..`."""
    escaped = quote(name, safe="").replace("~", "%7E")
    return (escaped.replace(".", "%2E", 1) if escaped.startswith(".") else escaped).replace("%", "~")


def project_named(key: str) -> str:
    """The name in an address. Raises `NotFound` for what is none."""
    try:
        return unquote(key.replace("~", "%"), errors="strict")
    except UnicodeDecodeError:
        raise NotFound from None
