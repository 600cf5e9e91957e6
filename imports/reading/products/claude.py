"""Claude (claude.ai): conversations as lists or trees of messages in blocks, projects, and Claude's own memory.

Since August 2026 the export has several zips, and each is read alone or together with the others: design chats are
conversations, files of the memory are notes, and an artifact is a file of a conversation of its own.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from core.text import Sentence
from core.text import gettext_noop as _
from imports.reading.attached import PASTED, ExportFiles, written
from imports.reading.drafts import NO_MESSAGES, ConversationDraft, NotShown, items_of
from imports.reading.envelopes import opened
from imports.reading.files import Files
from imports.reading.items import ImportedDocument, ImportedFile, Items, Skipped, UnreadableExport
from imports.reading.json_streams import LOOKED_AT, names_with, records
from imports.reading.products import ExportReader
from imports.reading.session_tree import calls_in, role_of, texts_of, unknown_kinds
from imports.reading.values import (
    Fields,
    base_name,
    first_of,
    first_time,
    id_of,
    joined,
    line_of,
    object_of,
    objects_of,
    parse_time,
    stable_id,
    text_of,
)

UNNAMED = "attachment"
_DESIGN_CHAT = {"uuid", "messages.uuid", "messages.role"}
_MEMORIES = ("conversations_memory", "project_memories", "memory_files")
_SHAPES = (
    {"chat_messages"}, {"prompt_template"}, {"docs", "uuid"}, *({name} for name in _MEMORIES), _DESIGN_CHAT,
)  # fmt: skip
_LIST_OF_PARTS = {"files.name", "files.url"}
_ARTIFACT = re.compile(r"(?P<folder>(?:.*/)?artifacts/[^/]+/)artifact\.json")


def _recognises(files: Files) -> int:
    if names_with(files, {"chat_messages"}, at_most=LOOKED_AT):
        return 95
    if names_with(files, *_SHAPES, at_most=LOOKED_AT) or any(map(_ARTIFACT.fullmatch, files.names())):
        return 80
    return 20 if names_with(files, _LIST_OF_PARTS, {"uuid", "full_name"}, at_most=LOOKED_AT) else 0


def _read(files: Files) -> Items:
    beside = ExportFiles(files)
    artifacts = [found for name in files.names() if (found := _ARTIFACT.fullmatch(name))]
    names = names_with(files, *_SHAPES)
    if not names and not artifacts:
        _refuse_list_of_parts(files)
    of_projects = names_with(files, {"prompt_template"}, {"docs", "uuid"})
    named = (object_of(record) for name in of_projects for _where, record in records(files, name))
    # By their ids, which memories and some conversations name.
    projects = {id_of(each, "uuid"): line_of(each, "name") for each in named if _is_project(each)}
    yield from items_of(files, names, partial(_items, beside, projects))
    for found in artifacts:
        yield from items_of(files, [found[0]], partial(_artifact, files, found["folder"]))
    yield from beside.notice()


def _refuse_list_of_parts(files: Files) -> None:
    """Raises `UnreadableExport` for the list that Claude gives beside the files themselves, which names them."""
    for name in names_with(files, _LIST_OF_PARTS):
        found = (each for _where, part in records(files, name) for each in objects_of(part, "files"))
        message = _(
            "This is the list of the files of your Claude export, not the export. Download the files that it names, "
            "and import each of them, or all in one zip: %(names)s."
        )
        raise UnreadableExport(Sentence(message, names=", ".join(line_of(each, "name") for each in found)))


def _is_project(record: Fields) -> bool:
    return "docs" in record or "prompt_template" in record


def _items(beside: ExportFiles, projects: Mapping[str, str], where: str, record: Any, not_shown: NotShown) -> Items:
    if not isinstance(record, dict):
        yield Skipped(where=where, reason=_("not a conversation, a project or a memory"))
    elif any(name in record for name in _MEMORIES):
        yield from _memories(record, projects)
        not_shown.note(where, *(record.keys() - {*_MEMORIES, "account_uuid"}))
    elif _is_project(record):
        yield from _project(where, record)
    elif isinstance(record.get("chat_messages"), list):
        yield _draft(where, record, not_shown, beside, projects).finished()
    elif isinstance(record.get("messages"), list):
        chat = {**record, "name": record.get("title"), "chat_messages": list(map(_as_message, record["messages"]))}
        yield _draft(where, chat, not_shown, beside, projects).finished()
    else:
        yield Skipped(where=where, reason=NO_MESSAGES, external_id=id_of(record, "uuid") or None)


def _as_message(message: Any) -> Fields:
    """A message of a design chat in the form of the others."""
    fields = object_of(message)
    content = fields.get("content")
    inner = object_of(content)
    blocks = content if isinstance(content, list) else inner.get("content") or inner.get("text") or content
    blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
    return {"attachments": inner.get("attachments"), **fields, "sender": fields.get("role"), "content": blocks}


def _artifact(files: Files, folder: str, where: str, record: Any, _not_shown: NotShown) -> Items:
    """The last version of an artifact, as a file; earlier ones are listed with what is not read."""
    fields = object_of(record)
    title = first_of(fields, "title", "name") or "Artifact"
    versions = [name for name in files.names() if name.startswith(f"{folder}versions/")]
    numbered = {name: base_name(name).partition(".")[0] for name in versions}
    last = max(versions, key=lambda name: (len(numbered[name]), numbered[name]), default="")
    if last:
        files.opened.add(last)
        name = f"{title}.{last.rpartition('.')[2]}"
        file = ImportedFile(name=name, entry=last, size=files.size(last))
    else:
        file = written(title, text_of(fields, "content"), text_of(fields, "type"))
    draft = ConversationDraft(product="claude", where=where, external_id=id_of(fields, "id"), title=title)
    at = first_time(fields, "updated_at", "created_at")
    draft.say("artifact", None, at, "assistant", title, names=[file.name], files=[file])
    yield draft.finished()


def _memories(record: Fields, projects: Mapping[str, str]) -> Items:
    account = id_of(record, "account_uuid")
    memories = {"memory:conversations": ("Claude's memory", "", text_of(record, "conversations_memory"))}
    for key, text in object_of(record, "project_memories").items():
        project = id_of(key)
        title = "Claude's memory of a project"
        memories[f"memory:project:{project}"] = (title, projects.get(project, ""), text_of(text))
    for external_id, (title, project, text) in memories.items():
        if text.strip():
            yield ImportedDocument(
                product="claude", external_id=external_id, title=title, project=project, text=text, account=account
            )
    for file in objects_of(record, "memory_files"):
        path = first_of(file, "path", "name")
        if (text := text_of(file, "content") or text_of(file, "text")).strip():
            yield ImportedDocument(
                product="claude",
                external_id=f"memory:file:{path}",
                title=base_name(path).removesuffix(".md") or "Claude's memory",
                text=text,
                at=first_time(file, "updated_at", "created_at"),
                project=projects.get(id_of(file, "project_uuid"), ""),
                account=account,
            )


def _project(where: str, record: Fields) -> Items:
    name = line_of(record, "name") or "Project"
    about = text_of(record, "description").strip()
    # Below the first text of the project.
    properties = (("description", about),) if about else ()
    documents = [each for each in objects_of(record, "docs") if text_of(each, "content")]
    prompt = text_of(record, "prompt_template").strip()
    if about and not prompt and not documents:
        reason = _("a project without instructions or documents: %(description)s")
        yield Skipped(where=where, reason=Sentence(reason, description=about[:300]))
    if prompt:
        yield ImportedDocument(
            product="claude",
            external_id=id_of(record, "uuid") or stable_id("claude project", name),
            title=f"{name} (instructions)",
            project=name,
            text=prompt,
            at=parse_time(record, "created_at"),
            properties=properties,
        )
        properties = ()
    for document in documents:
        title = line_of(document, "filename") or name
        yield ImportedDocument(
            product="claude",
            external_id=id_of(document, "uuid") or stable_id("claude document", name, title),
            title=title,
            project=name,
            text=text_of(document, "content"),
            at=parse_time(document, "created_at"),
            properties=properties,
        )
        properties = ()


def _draft(
    where: str, record: Fields, not_shown: NotShown, beside: ExportFiles, projects: Mapping[str, str]
) -> ConversationDraft:
    project = object_of(record, "project")
    project_id = id_of(project, "uuid") or id_of(record, "project_uuid")
    draft = ConversationDraft(
        product="claude",
        where=where,
        external_id=id_of(record, "uuid"),
        title=line_of(record, "name"),
        created_at=parse_time(record, "created_at"),
        last_at=parse_time(record, "updated_at"),
        project=line_of(project, "name") or projects.get(project_id),
    )
    messages = objects_of(record, "chat_messages")
    is_tree = any(id_of(each, "parent_message_uuid") for each in messages)
    before = None
    for place, message in enumerate(messages):
        node = id_of(message, "uuid")
        if not node or node in draft.parents:
            node = f"{node}#{place}"
        _say(draft, node, id_of(message, "parent_message_uuid") if is_tree else before, message, beside)
        if role_of(message, "sender") is None:
            not_shown.note(f"{where} {node}", f"sender {line_of(message, 'sender')}")
        not_shown.note(f"{where} {node}", *unknown_kinds(message.get("content")))
        before = node
    if is_tree:
        # The export does not name the current leaf: the newest message is on the current branch.
        dated = [(at, node) for node in draft.visible if (at := draft.times[node])]
        before = max(dated, key=lambda each: each[0])[1] if dated else None
    draft.leaf = before
    return draft


def _say(draft: ConversationDraft, node: str, parent: str | None, message: Fields, beside: ExportFiles) -> None:
    role, blocks = role_of(message, "sender"), objects_of(message, "content")
    # The text beside blocks repeats them, or says that a block is not supported.
    sources = (texts_of(blocks), [text_of(message, "text")])
    texts = (opened(each, "claude", is_answer=role == "assistant").text for each in sources)
    attached = objects_of(message, "attachments")
    names = [line_of(each, "file_name") or UNNAMED for each in [*attached, *_files(message)]]
    files = (*_extracted(attached), *_stored(message, beside), *_documents(blocks)) if role else ()
    draft.say(
        node,
        parent,
        parse_time(message, "created_at"),
        role,
        next(filter(None, texts), "") or _only_result(blocks),
        names=names,
        files=files,
        calls=calls_in(blocks),
    )


def _extracted(attached: list[Fields]) -> Iterator[ImportedFile]:
    """The texts that were read from attached files, or pasted."""
    for each in attached:
        if (text := text_of(each, "extracted_content")).strip():
            name = line_of(each, "file_name")
            yield ImportedFile(name=name or PASTED, text=text, named_as=name or UNNAMED)


def _stored(message: Fields, beside: ExportFiles) -> Iterator[ImportedFile]:
    """The files that lie in the export."""
    for each in _files(message):
        id_ = id_of(each, "file_uuid") or id_of(each, "uuid")
        if found := beside.find(id_, line_of(each, "file_name")):
            yield found


def _documents(blocks: list[Fields]) -> Iterator[ImportedFile]:
    """The artifacts and files that an answer wrote, as they are at its end; a change of a part is a folded call."""
    found: dict[str, ImportedFile] = {}
    for block in blocks:
        fields = object_of(block, "input")
        name = line_of(fields, "title") or base_name(line_of(fields, "path"))
        text = text_of(fields, "content") or text_of(fields, "file_text")
        if block.get("type") == "tool_use" and block.get("name") in ("artifacts", "create_file") and text.strip():
            key = id_of(fields, "id") or line_of(fields, "path") or name
            found[key] = written(name, text, text_of(fields, "language") or text_of(fields, "type"))
    yield from found.values()


def _only_result(blocks: list[Fields]) -> str:
    """An answer without a text of its own: the documents that it wrote, or else what its tools returned."""
    artifacts = (object_of(block, "input") for block in blocks if block.get("type") == "tool_use")
    written = joined(
        joined([f"**{title}**" if (title := line_of(each, "title")) else "", text])
        for each in artifacts
        if (text := text_of(each, "content") or text_of(each, "new_str"))
    )
    results = (block.get("content") for block in blocks if block.get("type") == "tool_result")
    return written or joined(text for content in results for text in texts_of(content))


def _files(message: Fields) -> list[Fields]:
    return [*objects_of(message, "files"), *objects_of(message, "files_v2")]


READER = ExportReader(
    product="claude",
    label="Claude",
    recognises=_recognises,
    read=_read,
    looks_for=_("conversations.json, projects, memories, design chats or artifacts, or the zips that hold them"),
    wordless=r"(?:^|/)(?:users|login_history)\.json\Z|(?:^|/)manifest[^/]*\.json\Z",
)
