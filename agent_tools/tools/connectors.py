"""`search` and `fetch`: the tools that ChatGPT's connectors require (a query, then one complete result), only over MCP.

The format is OpenAI's: https://developers.openai.com/api/docs/mcp. The search is that of `search_history`.
"""

import re
from contextlib import suppress
from datetime import date
from typing import Annotated

from django.utils import timezone
from pydantic import Field, StringConstraints

from agent_tools.models import TokenScope
from agent_tools.oauth.addresses import origin
from agent_tools.registry import Tool
from agent_tools.tools import attachments, conversations
from agent_tools.tools.history import MAX_QUERY_LENGTH
from agent_tools.tools.wording import known, result_id
from core.errors import NotFound
from core.ids import required
from core.text import Sentence, shortened
from core.text import gettext_noop as _
from core.validation import LONGEST_REFERENCE, Input, Output
from intake.chats.tree import conversation_path
from intake.models import User
from memory import records
from memory.addresses import document_path, note_path, path_to, record_path
from memory.models import MemoryDocument, MemoryRecord
from memory.search.history import HistoryRequest, search_history
from memory.search.sources import HistoryScope, Reference
from memory.short_ids import id_in

# The part of a text for which a model has room.
LONGEST_TEXT = 100_000
TITLE_LENGTH = 80
A_NUMBER = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)

ResultId = Annotated[str, Field(description="Its id, for `fetch`.")]
ResultTitle = Annotated[str, Field(description="What it is, and of which day.")]
ResultUrl = Annotated[str, Field(description="Where the person reads it.")]


class ConnectorQuery(Input):
    query: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY_LENGTH),
        Field(description="What to look for."),
    ]


class ConnectorResult(Output):
    id: ResultId
    title: ResultTitle
    url: ResultUrl
    excerpt: Annotated[str, Field(alias="text", description="At most 500 characters around the match.")]


class ConnectorResults(Output):
    results: Annotated[list[ConnectorResult], Field(description="Best first.")]


class ConnectorReference(Input):
    id: Annotated[str, Field(min_length=1, max_length=LONGEST_REFERENCE, description="The `id` of a result.")]


class ConnectorDocument(Output):
    id: ResultId
    title: ResultTitle
    # Not named `text` here: a model reads the complete output as JSON.
    content: Annotated[str, Field(alias="text", description="All of it, as far as it has 100,000 characters.")]
    url: ResultUrl
    metadata: Annotated[dict[str, str], Field(description="Its source and date, and whether it was cut.")]


def find(requested: ConnectorQuery, user: User | None) -> ConnectorResults:
    if user is None:
        return ConnectorResults(results=[])
    request = HistoryRequest(query=requested.query, scope=HistoryScope.ALL, max_results=10)
    found = search_history(request, user=user, now=timezone.now()).results
    return ConnectorResults(
        results=[
            ConnectorResult(
                id=_id_of(each.reference),
                title=_title_of(each.reference),
                url=_url(path_to(each.reference)),
                excerpt=each.excerpt.text,
            )
            for each in found
        ]
    )


def fetch_one(requested: ConnectorReference, user: User | None) -> ConnectorDocument:
    """Raises the same `NotFound` for a malformed id, an unknown one and another user's."""
    user = known(user)
    kind, _, key = requested.id.partition(":")
    if not key:
        return _of_bare_id(requested.id, user)
    match kind:
        case "conversation":
            return _conversation(requested.id, key, user)
        case "document":
            return _document(requested.id, key, user)
        case "record":
            return _record(requested.id, key, user)
        case "file":
            return _file(requested.id, key, user)
    raise NotFound


def _of_bare_id(name: str, user: User) -> ConnectorDocument:
    """As the other searches write it after `id: `."""
    conversation_id, slash, number = name.partition("/")
    if slash:
        return _conversation(name, f"{conversation_id}:{number}", user)
    for read in (_record, _document):
        with suppress(NotFound):
            return read(name, name, user)
    return _conversation(name, name, user)


def _id_of(reference: Reference) -> str:
    id_ = result_id(reference).replace("/", ":")
    if reference.attachment_id is not None:
        return id_
    kind = "conversation" if reference.conversation_id else "record" if reference.record_id else "document"
    return f"{kind}:{id_}"


def _title_of(reference: Reference) -> str:
    name = reference.file or reference.session or reference.document
    name = name or ("Saved memory" if reference.record_id else "Daily log")
    return _titled(_of_project(name, reference.project if reference.document_id else ""), reference.day)


def _of_project(name: str, project: str) -> str:
    return f"{name} of {project}" if project else name


def _titled(name: str, day: date) -> str:
    return f"{shortened(' '.join(name.split()), TITLE_LENGTH)} ({day})"


def _conversation(name: str, key: str, user: User) -> ConnectorDocument:
    """A turn, or as much of the end of a conversation as fits."""
    conversation_id, _, number = key.partition(":")
    around = _as_number(number) if number else None
    window = conversations.MOST_AROUND if around is None else 0
    asked = conversations.GetConversationInput.model_validate(
        {"conversationId": conversation_id, "around": around, "window": window}
    )
    found = conversations.get(asked, user)
    if not found.turns:
        raise NotFound
    day = found.last_active_at if around is None else found.turns[0].said_at
    was_cut = any(turn.truncated for turn in found.turns) or (around is None and found.earlier is not None)
    text = "\n\n".join(f"Person: {turn.person}\n\nAssistant: {turn.assistant}" for turn in found.turns)
    path = conversation_path(found.conversation_id, turn_number=around)
    source = "message" if around else "session"
    return _fetched(name, found.title, text, path, source=source, day=day.date(), was_cut=was_cut)


def _document(name: str, key: str, user: User) -> ConnectorDocument:
    rows = MemoryDocument.objects.for_user(user)
    row = required(rows.filter(pk=id_in(rows, key)).first())
    day, title = row.date or user.local_time(row.updated_at).date(), row.title
    path = note_path(row.pk)
    if row.kind != MemoryDocument.Kind.NOTE:
        title = "Daily log" if row.date else row.get_kind_display()
        path = document_path(row.day, project=row.project)
    name, title = name.replace(key, str(row.pk)), _of_project(title, row.project)
    return _fetched(name, title, row.content, path, source=row.kind, day=day)


def _record(name: str, key: str, user: User) -> ConnectorDocument:
    record = records.read(user=user, record_id=id_in(MemoryRecord.objects.for_user(user), key))
    day = user.local_time(record.created_at).date()
    name, path = name.replace(key, str(record.id)), record_path(record.id)
    return _fetched(name, record.type, record.content, path, source="memory", day=day)


def _file(name: str, key: str, user: User) -> ConnectorDocument:
    """The file from the part that was found on, as far as it fits."""
    attachment_id, _, part = key.partition(":")
    attachment = attachments.find(attachment_id, user)
    if attachment.conversation_id is None:
        # No message has it yet, so no search finds it.
        raise NotFound
    start = 0 if part in ("", "0") else _as_number(part)
    found, following = attachments.parts_from(attachment, start, most=LONGEST_TEXT)
    name, text = name.replace(attachment_id, str(attachment.pk)), attachments.in_one(found, most=LONGEST_TEXT)
    path = conversation_path(attachment.conversation_id, turn_number=attachment.turn_number)
    day, was_cut = user.local_time(attachment.created_at).date(), following is not None
    return _fetched(name, attachment.name, text, path, source="attachment", day=day, was_cut=was_cut)


def _fetched(
    name: str, title: str, text: str, path: str, *, source: str, day: date, was_cut: bool = False
) -> ConnectorDocument:
    about = {"source": source, "date": day.isoformat()}
    if was_cut or len(text) > LONGEST_TEXT:
        about["truncated"] = "true"
    title = _titled(title, day)
    return ConnectorDocument(id=name, title=title, content=text[:LONGEST_TEXT], url=_url(path), metadata=about)


def _url(path: str) -> str:
    return f"{origin.get()}{path}"


def _as_number(text: str) -> int:
    if not A_NUMBER.fullmatch(text):
        raise NotFound
    return int(text)


search = Tool(
    name="search",
    description="`search_history` without its options, for ChatGPT's connectors. Read a result with `fetch`.",
    input_model=ConnectorQuery,
    output_model=ConnectorResults,
    is_read_only=True,
    run=find,
    acts_itself=True,
    summarise=lambda output, user: Sentence(_("Found %(count)s"), count=len(output.results)),
)

fetch = Tool(
    name="fetch",
    description=(
        "Read a result of any search whole: a turn with its answer, a note, a log, a memory, a file. `url` is where "
        "the person reads it, to be cited."
    ),
    input_model=ConnectorReference,
    output_model=ConnectorDocument,
    is_read_only=True,
    named_scope=TokenScope.READ,
    run=fetch_one,
    summarise=lambda output, user: Sentence(_("Read %(title)s"), title=output.title),
)
