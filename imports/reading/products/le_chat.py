"""Le Chat (Mistral): one file for each chat, a list of its messages with the chat's id in each."""

from collections.abc import Iterator
from typing import Any

from core.text import gettext_noop as _
from imports.reading.attached import ExportFiles, written
from imports.reading.drafts import ConversationDraft, NotShown, broken_off
from imports.reading.files import Files
from imports.reading.items import ImportedFile, Items, Role
from imports.reading.json_streams import BrokenJSON, names_with, of_shapes, records
from imports.reading.products import ExportReader
from imports.reading.session_tree import said, texts_of, unknown_kinds
from imports.reading.times import parse_time
from imports.reading.values import id_of, joined, line_of, object_of, objects_of, text_of

_SHAPE = {"chatId", "role", "content"}
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
_KNOWN_CHUNKS = {"reference", "tool_reference", "tool_call", "thinking"}


def _read(files: Files) -> Items:
    beside, not_shown = ExportFiles(files), NotShown()
    for name in names_with(files, _SHAPE):
        chats: dict[str, ConversationDraft] = {}
        broken = None
        try:
            for where, value in records(files, name):
                message = object_of(value)
                chat = id_of(message, "chatId")
                draft = chats.setdefault(chat, ConversationDraft(product="le-chat", where=where, external_id=chat))
                _add(draft, message, f"{where} {id_of(message, 'id')}", not_shown, beside)
        except BrokenJSON as error:
            broken = broken_off(name, error)
        for draft in chats.values():
            yield draft.finished()
        if broken:
            yield broken
    yield from not_shown.listed()
    yield from beside.notice()


def _add(
    draft: ConversationDraft, message: dict[str, Any], where: str, not_shown: NotShown, beside: ExportFiles
) -> None:
    node = id_of(message, "id") or f"message-{len(draft.parents)}"
    node = f"{node}#{len(draft.parents)}" if node in draft.parents else node
    before = next(reversed(draft.parents), None)
    # A further version of an answer follows the same question.
    if before and message.get("version") and getattr(draft.visible.get(before), "role", "") == message.get("role"):
        before = draft.parents[before]
    at, role = parse_time(message, "createdAt"), _ROLES.get(line_of(message, "role"))
    named = id_of(message, "parentId") or before
    if role is None:
        not_shown.note(f"role {line_of(message, 'role')}", where)
        draft.add(node, named, at, "role")
        return
    chunks = message.get("contentChunks")
    # Chunks are cut anywhere, also in the middle of a word.
    text = text_of(message, "content").strip() or "".join(texts_of(chunks)).strip()
    names = tuple(line_of(each, "name") or "file" for each in objects_of(message, "files"))
    canvases = (
        written(line_of(each, "title"), content, text_of(each, "type"))
        for each in objects_of(message, "canvas")
        if (content := text_of(each, "content")).strip()
    )
    files = (*_stored(message, beside), *canvases)
    for kind in unknown_kinds(chunks):
        if kind not in _KNOWN_CHUNKS:
            not_shown.note(kind, where)
    quotes = joined(f"> {text_of(each, 'text') or text_of(each)}" for each in objects_of(message, "quotes"))
    if text or names or files:
        text = joined([quotes, text])
    draft.add(node, named, at, said(node, role, text, at, model=message.get("model"), names=names, files=files))


def _stored(message: dict[str, Any], beside: ExportFiles) -> Iterator[ImportedFile]:
    for each in objects_of(message, "files"):
        if found := beside.find(id_of(each, "id"), line_of(each, "name")):
            yield found


READER = ExportReader(
    product="le-chat",
    label="Le Chat",
    recognises=of_shapes(_SHAPE),
    read=_read,
    looks_for=_("chat-….json, a list of messages with a chatId"),
)
