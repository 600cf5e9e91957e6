"""Open WebUI: a list of chats, or one chat, each a map of messages with `parentId` beneath `history`.

Qwen's export is the same within `data`, with an answer's texts in `content_list`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from core.text import gettext_noop as _
from imports.reading.attached import from_url
from imports.reading.drafts import NO_MESSAGES, ConversationDraft, NotShown, items_of
from imports.reading.envelopes import opened
from imports.reading.files import Files
from imports.reading.items import ImportedFile, ImportedMessage, Item, Items, Role, Skipped
from imports.reading.json_streams import names_with, of_shapes
from imports.reading.products import ExportReader
from imports.reading.session_tree import said, texts_of, unknown_kinds
from imports.reading.times import parse_time
from imports.reading.values import id_of, line_of, object_of, objects_of, text_of, value_at

_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
# What the model thought and did.
_FOLDED_ITEMS = {
    "reasoning", "function_call", "function_call_output", "code_interpreter", "open_webui:code_interpreter",
    "web_search_call",
}  # fmt: skip
# The phases of Qwen's answers that are no thinking and no search.
_SHOWN_PHASES = (None, "", "answer")
_SHAPES = (
    {"chat.history"},
    {"history.messages"},
    {"history", "models"},
    {"chat.messages"},
    {"data.chat.history"},
    {"data.chat.messages"},
    {"models", "messages.role", "messages.content"},
)


def _read(files: Files) -> Items:
    names = names_with(files, *_SHAPES)
    return items_of(files, names, lambda where, record, not_shown: _conversation(where, record, not_shown, files))


def _conversation(where: str, record: Any, not_shown: NotShown, files: Files) -> Iterator[Item]:
    fields = object_of(record)
    for number, each in enumerate(objects_of(fields, "data")):
        yield from _conversation(f"{where}:data[{number}]", each, not_shown, files)
    if fields.get("data") and "chat" not in fields:
        return
    chat = object_of(fields, "chat") or fields
    messages = value_at(chat, "history", "messages")
    found = (isinstance(messages, dict) and messages) or _listed(chat.get("messages")) or messages
    if isinstance(found, dict):
        yield _draft(where, fields, chat, found, not_shown, files).finished()
    else:
        yield Skipped(where=where, reason=NO_MESSAGES, external_id=id_of(fields, "id") or None)


def _listed(messages: Any) -> dict[str, Any]:
    """The messages of a chat without a history: a list, each after the one before it if it names no parent."""
    found: dict[str, Any] = {}
    before = None
    for place, message in enumerate(objects_of(messages)):
        node = id_of(message, "id") or f"message-{place}"
        node = f"{node}#{place}" if node in found else node
        found[node] = message if "parentId" in message else {**message, "parentId": before}
        before = node
    return found


def _draft(
    where: str,
    record: dict[str, Any],
    chat: dict[str, Any],
    messages: dict[str, Any],
    not_shown: NotShown,
    files: Files,
) -> ConversationDraft:
    draft = ConversationDraft(
        product="open-webui",
        where=where,
        external_id=id_of(record, "id"),
        title=line_of(record, "title") or line_of(chat, "title"),
        created_at=parse_time(record, "created_at") or parse_time(chat, "timestamp"),
        last_at=parse_time(record, "updated_at"),
        is_archived=record.get("archived") is True,
        leaf=id_of(chat, "history", "currentId") or None,
    )
    merged = {id_of(key): f"{id_of(key)}-merged" for key, value in messages.items() if _merged(object_of(value))}
    for key, value in messages.items():
        node, message = id_of(key), object_of(value)
        at = parse_time(message, "timestamp")
        parent = id_of(message, "parentId") or None
        draft.add(node, merged.get(parent or "", parent), at, _message(node, message, files))
        if node in merged:
            answer = ImportedMessage(id=merged[node], parent=None, role="assistant", text=_merged(message), at=at)
            draft.add(merged[node], node, at, answer)
        for kind in _unknown_kinds(message):
            not_shown.note(kind, f"{where} {node}")
    draft.leaf = merged.get(draft.leaf or "", draft.leaf)
    return draft


def _merged(message: dict[str, Any]) -> str:
    """The answer that was made of those of several models."""
    return text_of(message, "merged", "content").strip()


def _message(node: str, message: dict[str, Any], files: Files) -> ImportedMessage | str:
    role = _ROLES.get(text_of(message, "role"))
    if role is None:
        return f"role {text_of(message, 'role')}"
    texts = [text for text in texts_of(message.get("content")) if text.strip()]
    if not texts:
        # Newer versions keep an answer's blocks beside an empty text.
        texts = [text for item in objects_of(message, "output") for text in _texts_of_item(item)]
        listed = objects_of(message, "content_list")
        texts = texts or [text_of(each, "content") for each in listed if each.get("phase") in _SHOWN_PHASES]
    text = opened(texts, "open-webui", is_answer=role == "assistant").text
    attached = objects_of(message, "files")
    if not text and not attached and message.get("error"):
        return "error"
    return said(
        node,
        role,
        text,
        parse_time(message, "timestamp"),
        model=text_of(message, "model"),
        names=map(_name, attached),
        files=[found for each in attached if (found := _file(each, files))],
        calls=[
            {"name": "thinking", "summary": thought}
            for each in objects_of(message, "content_list")
            if each.get("phase") not in _SHOWN_PHASES and (thought := text_of(each, "content").strip())
        ],
    )


def _texts_of_item(item: dict[str, Any]) -> list[str]:
    return [] if item.get("type") in _FOLDED_ITEMS else [*texts_of(item.get("content")), *texts_of([item])]


def _unknown_kinds(message: dict[str, Any]) -> list[str]:
    role = line_of(message, "role")
    outer = [] if role in (*_ROLES, "system", "tool") else [f"role {role}"]
    items = (item for item in objects_of(message, "output") if not any(_texts_of_item(item)))
    kinds = [line_of(item, "type") or "no kind" for item in items]
    known = {"message", *_FOLDED_ITEMS}
    return [*outer, *unknown_kinds(message.get("content")), *(kind for kind in kinds if kind not in known)]


def _name(file: dict[str, Any]) -> str:
    return line_of(file, "name") or line_of(file, "file", "filename") or "image"


def _file(file: dict[str, Any], files: Files) -> ImportedFile | None:
    """The text that was read from it, or the picture itself."""
    inner = object_of(file, "file", "data")
    text = text_of(file, "data", "content") or text_of(inner, "content")
    if text.strip():
        return ImportedFile(name=_name(file), text=text)
    found = from_url(files, text_of(file, "url"), line_of(file, "name"))
    return found and replace(found, named_as=_name(file))


READER = ExportReader(
    product="open-webui",
    label="Open WebUI",
    recognises=of_shapes(*_SHAPES, is_sure=False),
    read=_read,
    looks_for=_("JSON of chats with a history of messages"),
)
